// The part of the OpenAPI document about the client library: its script, and the endpoint to which it sends. It adds to the schemas the
// rules that `ingest/` checks.

import { collectResultSchema } from '../../contract/answers.js';
import {
  bodies,
  counts,
  reservedAutocapturedPropertyKeys,
  reservedUserPropertyKeys,
} from '../../contract/limits.js';
import {
  collectSchema,
  envelopeSchema,
  eventMessageSchema,
  identifyMessageSchema,
  userPropertiesMessageSchema,
} from '../../contract/schemas.js';
import { userIdForm } from '../../contract/user-id.js';
import { collectErrors, collectRequests, collectResults } from './collect-examples.js';
import {
  type Doc,
  ignoredHeader,
  json,
  limitText,
  type OpenApiPart,
  propertyRules,
  ref,
} from './document.js';

const tag = 'Client library';

const messageFields = {
  user_id: { ...eventMessageSchema.properties.user_id, pattern: userIdForm.source },
  time: { ...eventMessageSchema.properties.time, format: 'date-time' },
};

export const collectPart: OpenApiPart = {
  tag: {
    name: tag,
    description:
      'What the client library needs: its script, and the endpoint that takes what it gathers. Both are open to the pages of any site, unless an environment lists origins: every answer carries `Access-Control-Allow-Origin: *`; cookies and credentials are ignored.',
  },
  schemas: {
    EventMessage: {
      ...eventMessageSchema,
      properties: {
        ...eventMessageSchema.properties,
        ...messageFields,
        properties: {
          ...eventMessageSchema.properties.properties,
          ...propertyRules(reservedAutocapturedPropertyKeys),
        },
      },
      description: 'An event.',
    },
    IdentifyMessage: {
      ...identifyMessageSchema,
      properties: { ...identifyMessageSchema.properties, ...messageFields },
      description:
        'Merges the user_id, with all of its past and future activity, into the identity. A user_id keeps its first identity.',
    },
    UserPropertiesMessage: {
      ...userPropertiesMessageSchema,
      properties: {
        ...userPropertiesMessageSchema.properties,
        ...messageFields,
        properties: {
          ...userPropertiesMessageSchema.properties.properties,
          ...propertyRules(reservedUserPropertyKeys),
        },
      },
      description: 'Sets properties of the user.',
    },
    CollectRequest: {
      ...collectSchema,
      required: [...envelopeSchema.required, ...collectSchema.required],
      properties: {
        ...envelopeSchema.properties,
        sent_at: { ...collectSchema.properties.sent_at, format: 'date-time' },
        pairing: {
          type: 'string',
          description: 'The secret of a pairing with the Event Visualizer, while there is one.',
        },
        messages: {
          ...collectSchema.properties.messages,
          items: { oneOf: [ref('EventMessage'), ref('IdentifyMessage'), ref('UserPropertiesMessage')] },
        },
      },
      description: `1 to ${counts.collectMessagesMax} messages of one environment.`,
    },
    CollectResult: { ...collectResultSchema, description: 'One answer per message.' },
  },
};

/** The document of the route. The admission adds its refusals. */
export const collectDoc: Doc = {
  id: 'collect',
  tag,
  summary: 'Take messages of the client library',
  description: [
    'Stores what the client library gathered: events, identifications and properties of users, in the order of the request. Every message gets its own answer: a well-formed request is answered 200, whatever becomes of its messages.',
    'The id of a message is its idempotency key, whatever its type; it shares its keyspace with the idempotency_key of /api/track, unless the environment requires write keys. A message that was stored before is answered `repeat`, so a request that got no answer, or a 503, is sent again unchanged. A 503 holds for all messages of its request.',
    `Messages that set user properties: ${limitText('user_properties')}, identity (without one, user_id) and environment, counted separately from all other endpoints. A message above that is answered \`limited\` and should be sent again after \`retry_after\` seconds; the others of its request are stored. Repeats don't count. In the same way for all messages: ${limitText('collect_user')}, identity (or user_id) and environment, and ${limitText('collect_app')} and environment. Like the records of all endpoints, they also count towards app_records and app_bytes.`,
    'An environment may list the origins that it takes messages from; requests with another Origin header are answered 403. An address that sends too many bytes is answered 429.',
    "The time of a message is corrected for errors of the client's clock: a call ten seconds before `sent_at` is stored as ten seconds before the service received the request. A time after `sent_at` counts as `sent_at`; a result before 1970 is stored as the beginning of 1970.",
    `The body is JSON in UTF-8 with the type application/json, with text/plain (which a page may send without a preflight), or without a type. At most ${bodies.collectBytesMax} bytes.`,
  ].join('\n\n'),
  body: {
    ...json(ref('CollectRequest'), collectRequests),
    'text/plain': { schema: { type: 'string', contentMediaType: 'application/json' } },
  },
  answers: {
    200: {
      description: 'The result of each message.',
      headers: { 'Access-Control-Allow-Origin': allowOrigin(), ...ignoredHeader },
      content: json(ref('CollectResult'), collectResults),
    },
  },
  refuses: ['empty', 'too_many_records', 'invalid_timestamp', 'origin_not_allowed', 'rate_limited'],
  refusal: {
    headers: Object.fromEntries(
      [400, 403, 408, 413, 415, 429, 500, 503].map((status) => [
        status,
        { 'Access-Control-Allow-Origin': allowOrigin() },
      ]),
    ),
    examples: { 400: collectErrors },
  },
};

export const collectPreflightDoc: Doc = {
  id: 'collectPreflight',
  tag,
  summary: 'Whether a page may send',
  answers: { 204: { description: 'It may, from any site.' } },
};

/** The document of the script or of its source map. */
export function scriptDoc(id: string, summary: string, type: string): Doc {
  return {
    id,
    tag,
    summary,
    answers: {
      200: { description: 'As it was built.', content: { [type]: { schema: {} } } },
      304: { description: 'The caller has it already, according to its If-None-Match.' },
    },
    refuses: ['not_found'],
  };
}

function allowOrigin(): object {
  return { required: true, description: 'Any site.', schema: { const: '*' } };
}
