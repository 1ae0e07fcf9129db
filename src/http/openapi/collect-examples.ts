// The examples of the client library's part of the OpenAPI document. A test sends each to a running service.

import type { Examples } from './document.js';

const appId = '1000000001';
const userId = '4503599627370496';
const identity = 'ada@example.com';

export const collectRequests: Examples = {
  page: {
    summary: 'A visitor opens a page and logs in',
    value: {
      app_id: appId,
      sent_at: '2026-03-01T12:30:05.000Z',
      messages: [
        {
          type: 'event',
          id: '0b8f6a52c1d94e7f8a3b5c6d7e8f9012',
          user_id: userId,
          session_id: '5629499534213120',
          time: '2026-03-01T12:30:00.250Z',
          event: 'Page View',
          properties: { path: '/pricing', title: 'Pricing' },
          autocaptured: true,
        },
        {
          type: 'identify',
          id: '1c9e7b63d2ea4f8091b4d6e7f8091a23',
          user_id: userId,
          identity,
          session_id: '5629499534213120',
          time: '2026-03-01T12:30:02.000Z',
        },
        {
          type: 'user_properties',
          id: '2daf8c74e3fb40919c25e7f8091a2b34',
          user_id: userId,
          identity,
          session_id: '5629499534213120',
          time: '2026-03-01T12:30:02.500Z',
          properties: { email: identity, plan: 'pro' },
        },
      ],
    },
  },
};

export const collectResults: Examples = {
  some: {
    summary: 'One message is stored, one is sent twice, one can never be stored',
    request: {
      app_id: appId,
      sent_at: '2026-03-01T12:30:05.000Z',
      messages: [
        { type: 'event', id: 'event-1', user_id: userId, event: 'Opened' },
        { type: 'event', id: 'event-1', user_id: userId, event: 'Opened' },
        { type: 'event', id: 'event-2', user_id: userId, event: 'Opened', properties: { session_id: '1' } },
      ],
    },
    value: {
      messages: [
        { id: 'event-1', status: 'stored' },
        { id: 'event-1', status: 'repeat' },
        {
          id: 'event-2',
          status: 'rejected',
          code: 'reserved_property',
          message: 'The key session_id must not be used in properties.',
          field: 'properties.session_id',
        },
      ],
    },
  },
  limited: {
    summary: 'A message is over its limit',
    value: {
      messages: [
        { id: 'event-3', status: 'stored' },
        { id: 'properties-31', status: 'limited', code: 'rate_limited', retry_after: 12 },
      ],
    },
  },
};

export const collectErrors: Examples = {
  empty: {
    summary: 'No messages',
    request: { app_id: appId, sent_at: '2026-03-01T12:30:05.000Z', messages: [] },
    value: { err: { message: 'messages must not be empty.', code: 'empty', field: 'messages' } },
  },
};
