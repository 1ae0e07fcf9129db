// The examples of the ingestion part of the OpenAPI document: requests as they are sent, and answers, each with a request that gets it. A
// test sends each request to a running service, with an app_id that exists there.

import type { Examples } from './document.js';

const appId = '1000000001';

export const trackRequests: Examples = {
  event: {
    summary: 'One event of an identified user',
    value: {
      app_id: appId,
      event: 'Order Completed',
      identity: 'ada@example.com',
      timestamp: '2026-03-01T12:30:00.250+01:00',
      idempotency_key: 'order-1001-completed',
      properties: { amount: 12.5, currency: 'EUR', tags: ['gift', 'express'] },
    },
  },
  anonymous: {
    summary: 'One event of an anonymous user, now',
    value: { app_id: appId, event: 'Error', user_id: '4503599627370496', properties: { message: 'timeout' } },
  },
  bulk: {
    summary: 'Several events',
    value: {
      app_id: appId,
      events: [
        { event: 'Order Completed', identity: 'ada@example.com', idempotency_key: 'order-1002-completed' },
        { event: 'Order Completed', identity: 'grace@example.com', idempotency_key: 'order-1003-completed' },
      ],
    },
  },
};

export const trackResults: Examples = {
  stored: {
    summary: 'Everything was stored',
    request: { app_id: appId, event: 'Signed Up', identity: 'grace@example.com' },
    value: {},
  },
  partial: {
    summary: 'A bulk request with one bad event',
    request: {
      app_id: appId,
      events: [
        { event: 'Signed Up', identity: 'ada@example.com' },
        { event: 'Signed Up', identity: 'ada@example.com', properties: { newsletter: true } },
      ],
    },
    value: {
      accepted: 1,
      rejected: 1,
      errors: [
        {
          index: 1,
          code: 'invalid_type',
          field: 'properties.newsletter',
          message:
            'properties.newsletter has the wrong type: it must be a number, a string or an array, but is a boolean.',
        },
      ],
    },
  },
};

export const trackErrors: Examples = {
  missing_user: {
    summary: 'No user is named',
    request: { app_id: appId, event: 'Signed Up' },
    value: {
      err: {
        message: 'Exactly one of identity and user_id must be given.',
        code: 'missing_user',
        field: 'identity',
      },
    },
  },
  reserved_property: {
    summary: 'A reserved key',
    request: {
      app_id: appId,
      event: 'Signed Up',
      identity: 'ada@example.com',
      properties: { session_id: '1' },
    },
    value: {
      err: {
        message: 'The key session_id must not be used in properties.',
        code: 'reserved_property',
        field: 'properties.session_id',
      },
    },
  },
};

export const userPropertiesRequests: Examples = {
  user: {
    summary: 'Properties of one user',
    value: {
      app_id: appId,
      identity: 'ada@example.com',
      properties: { email: 'ada@example.com', plan: 'pro', seats: 3 },
    },
  },
  bulk: {
    summary: 'Properties of several users',
    value: {
      app_id: appId,
      users: [
        { identity: 'ada@example.com', properties: { plan: 'pro' } },
        { identity: 'grace@example.com', properties: { plan: 'free' } },
      ],
    },
  },
};

export const userPropertiesErrors: Examples = {
  too_long: {
    summary: 'A value with more characters than allowed',
    request: { app_id: appId, identity: 'ada@example.com', properties: { biography: 'a'.repeat(256) } },
    value: {
      err: {
        message: 'properties.biography is too long.',
        code: 'too_long',
        field: 'properties.biography',
      },
    },
  },
};

export const identifyRequests: Examples = {
  identify: {
    summary: 'A user logs in',
    value: { app_id: appId, user_id: '4503599627370496', identity: 'ada@example.com' },
  },
};

export const identifyErrors: Examples = {
  merges_strangers: {
    summary: 'A generic word',
    request: { app_id: appId, user_id: '4503599627370496', identity: 'undefined' },
    value: {
      err: {
        message:
          'This identity is a word that many users would share; identifying by it would merge them forever.',
        code: 'merges_strangers',
        field: 'identity',
      },
    },
  },
};
