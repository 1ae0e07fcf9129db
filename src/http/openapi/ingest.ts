// The part of the OpenAPI document about ingestion. It adds to the schemas the rules that `ingest/` checks (exactly one of two fields,
// reserved keys, forms of text). These additions are only for programs that read the document; the service does not use them for its
// checks.

import { bulkErrorSchema, bulkResultSchema, emptySchema } from '../../contract/answers.js';
import {
  bodies,
  claims,
  counts,
  reservedEventPropertyKeys,
  reservedUserPropertyKeys,
} from '../../contract/limits.js';
import type { OutcomeCode } from '../../contract/outcomes.js';
import { eventSchema, identifySchema, userPropertiesSchema } from '../../contract/records.js';
import { bulkEventsSchema, bulkUsersSchema, envelopeSchema } from '../../contract/schemas.js';
import { userIdForm } from '../../contract/user-id.js';
import {
  type Doc,
  type Examples,
  ignoredHeader,
  json,
  limitText,
  type OpenApiPart,
  propertyRules,
  ref,
  repeatsHeader,
} from './document.js';
import {
  identifyErrors,
  identifyRequests,
  trackErrors,
  trackRequests,
  trackResults,
  userPropertiesErrors,
  userPropertiesRequests,
} from './ingest-examples.js';

const tag = {
  name: 'Ingestion',
  description:
    'Takes events and properties of users from servers. No credentials are needed unless the environment requires a write key. The answers carry no CORS headers, so fetch, XMLHttpRequest and jQuery in a browser are not supported. 200 means that what was sent is kept.',
};

const fieldCodes = ['empty', 'too_long', 'invalid_text'] as const satisfies OutcomeCode[];
const propertyCodes = ['reserved_property', 'too_many_properties'] as const satisfies OutcomeCode[];
const bulkCodes = [
  'too_many_records',
  'too_large_for_limit',
  'rate_limited',
] as const satisfies OutcomeCode[];
const timeCodes = ['invalid_timestamp', 'timestamp_out_of_range'] as const satisfies OutcomeCode[];

const timestampForm = { format: 'date-time' };
const exactlyOneUser = { oneOf: [{ required: ['identity'] }, { required: ['user_id'] }] };

const eventProperties = {
  ...eventSchema.properties,
  user_id: { ...eventSchema.properties.user_id, pattern: userIdForm.source },
  timestamp: { ...eventSchema.properties.timestamp, ...timestampForm },
  properties: { ...eventSchema.properties.properties, ...propertyRules(reservedEventPropertyKeys) },
};

const userProperties = {
  ...userPropertiesSchema.properties,
  properties: { ...userPropertiesSchema.properties.properties, ...propertyRules(reservedUserPropertyKeys) },
};

const schemas = {
  TrackRequest: {
    ...withAppId({ ...eventSchema, properties: eventProperties }),
    ...exactlyOneUser,
    description: 'One event.',
  },
  Event: {
    ...eventSchema,
    properties: eventProperties,
    ...exactlyOneUser,
    description: 'One event of a bulk request.',
  },
  BulkTrackRequest: withAppId({
    ...bulkEventsSchema,
    properties: { events: { ...bulkEventsSchema.properties.events, items: ref('Event') } },
    description: `1 to ${counts.bulkEventsMax} events of one environment.`,
  }),
  UserPropertiesRequest: {
    ...withAppId({ ...userPropertiesSchema, properties: userProperties }),
    description: 'Properties of one user.',
  },
  User: {
    ...userPropertiesSchema,
    properties: userProperties,
    description: 'One user of a bulk request.',
  },
  BulkUserPropertiesRequest: withAppId({
    ...bulkUsersSchema,
    properties: { users: { ...bulkUsersSchema.properties.users, items: ref('User') } },
    description: `1 to ${counts.bulkUsersMax} users of one environment.`,
  }),
  IdentifyRequest: {
    ...withAppId({
      ...identifySchema,
      properties: {
        ...identifySchema.properties,
        user_id: { ...identifySchema.properties.user_id, pattern: userIdForm.source },
        timestamp: { ...identifySchema.properties.timestamp, ...timestampForm },
      },
    }),
    description: 'One identification.',
  },
  Empty: emptySchema,
  BulkResult: {
    ...bulkResultSchema,
    description: 'Some elements of a bulk request were refused; the others were stored.',
  },
  BulkError: {
    ...bulkErrorSchema,
    description:
      'A refused request. If a bulk request is refused for its elements, accepted, rejected and errors stand beside err.',
  },
};

/** @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/ */
const rateLimitHeaders = {
  'RateLimit-Policy': {
    required: true,
    description: 'The limit that has no room: its name, q = requests or records, w = window in seconds.',
    schema: { type: 'string' },
    example: '"track";q=30;w=30',
  },
  RateLimit: {
    required: true,
    description: 'What is left: its name, r = requests or records, t = seconds until the request fits.',
    schema: { type: 'string' },
    example: '"track";r=0;t=12',
  },
};

const strict = {
  name: 'strict',
  in: 'query',
  description: 'For bulk requests: 1 or true refuses the whole request if one of its elements is bad.',
  schema: { type: 'string', enum: ['1', 'true'] },
};

const bulkAdvice =
  'If a bulk request has bad elements, the good ones are stored and the bad ones listed in the answer; if all are bad, it is refused. A bulk request that does not fit its limits now is refused as a whole, with 429; a refused request uses up nothing of any limit.';

const ofAllEndpoints = `All endpoints of an environment together take ${limitText('app_records', 'records')} and ${limitText('app_bytes', 'bytes')}, unless set otherwise.`;

export const ingestPart: OpenApiPart = {
  tag,
  schemas,
  securitySchemes: {
    writeKey: {
      type: 'http',
      scheme: 'basic',
      description:
        'For environments that require a write key: the app_id as user name, a write key as password. All others ignore credentials.',
    },
    writeKeyAsToken: { type: 'http', scheme: 'bearer', description: 'The same: a write key.' },
  },
};

const stored = (result: object, isBulk: boolean, results: Examples = {}) => ({
  200: {
    description: isBulk
      ? 'Stored, or stored before under the same key: an empty object. When some elements of a bulk request were refused: what was stored and what was not.'
      : 'Stored, or identified before: an empty object.',
    headers: { ...ignoredHeader, ...repeatsHeader },
    content: json(result, results),
  },
});
const refusalOf = (errors: Examples, isBulk: boolean) => ({
  headers: { 429: rateLimitHeaders },
  examples: { 400: errors },
  schemas: { 400: ref(isBulk ? 'BulkError' : 'Error') },
});
const bulkAnswers = { oneOf: [ref('Empty'), ref('BulkResult')] };

/** The documents of the routes, by the kind of records. The guards and the admission add their part. */
export const ingestDocs = {
  track: {
    id: 'track',
    tag: tag.name,
    version: '1.0',
    summary: 'Track one event, or many',
    description: [
      `Stores one event, or in bulk 1 to ${counts.bulkEventsMax} events of one environment. ${keptFor()}`,
      bulkAdvice,
      `Limits, by default: ${limitText('track', 'requests')} per identity or user_id and environment; in bulk ${limitText('bulk_identity', 'events')} per identity or user_id and environment, and ${limitText('bulk_app', 'events')} per environment. ${ofAllEndpoints}`,
      bodyText(),
    ].join('\n\n'),
    parameters: [strict],
    body: json({ oneOf: [ref('TrackRequest'), ref('BulkTrackRequest')] }, trackRequests),
    answers: stored(bulkAnswers, true, trackResults),
    refuses: [
      ...fieldCodes,
      'missing_user',
      'ambiguous_user',
      'invalid_user_id',
      ...timeCodes,
      ...propertyCodes,
      ...bulkCodes,
    ],
    refusal: refusalOf(trackErrors, true),
  },
  add_user_properties: {
    id: 'addUserProperties',
    tag: tag.name,
    summary: 'Set properties of one user, or of many',
    description: [
      `Attaches key-value pairs to a user, or in bulk to 1 to ${counts.bulkUsersMax} users of one environment, for all of their past and future activity. A new identity creates a user. For each key, the value accepted last counts.`,
      bulkAdvice,
      `Limits, by default: ${limitText('user_properties', 'requests')} per identity and environment; in bulk ${limitText('bulk_identity', 'users')} per identity and environment, and ${limitText('bulk_app', 'users')} per environment. ${ofAllEndpoints}`,
      bodyText(),
    ].join('\n\n'),
    parameters: [strict],
    body: json(
      { oneOf: [ref('UserPropertiesRequest'), ref('BulkUserPropertiesRequest')] },
      userPropertiesRequests,
    ),
    answers: stored(bulkAnswers, true),
    refuses: [...fieldCodes, ...propertyCodes, ...bulkCodes],
    refusal: refusalOf(userPropertiesErrors, true),
  },
  identify: {
    id: 'identify',
    tag: tag.name,
    summary: 'Identify an anonymous user',
    description: [
      'Merges the anonymous user of a user_id, with all past and future activity, into the user of an identity. This cannot be undone. A user_id has one identity: the first one accepted counts, later ones change nothing.',
      ofAllEndpoints,
      `At most ${bodies.singleBytesMax} bytes of body.`,
    ].join('\n\n'),
    body: json(ref('IdentifyRequest'), identifyRequests),
    answers: stored(ref('Empty'), false),
    refuses: [...fieldCodes, 'invalid_user_id', 'merges_strangers', ...timeCodes],
    refusal: refusalOf(identifyErrors, false),
  },
} satisfies Readonly<Record<string, Doc>>;

function keptFor(): string {
  const hours = claims.windowMsMax / 3_600_000;
  return `An idempotency_key can never be used again. A repeat within ${hours} hours (less at high rates) is counted as a repeat; a later one is answered like a new event, but not stored.`;
}

function bodyText(): string {
  return `At most ${bodies.singleBytesMax} bytes of body, in bulk ${bodies.bulkBytesMax}.`;
}

function withAppId<T extends { required?: readonly string[]; properties: object }>(schema: T) {
  return {
    ...schema,
    required: [...envelopeSchema.required, ...(schema.required ?? [])],
    properties: { ...envelopeSchema.properties, ...schema.properties },
  };
}
