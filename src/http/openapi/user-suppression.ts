// The part of the OpenAPI document about suppressed users.

import { suppressedSchema, suppressionLookupSchema, suppressionSchemas } from '../../contract/answers.js';
import { suppressions } from '../../contract/limits.js';
import { suppressionSchema, suppressionUsersSchema } from '../../contract/schemas.js';
import { byAccessToken, refusalsToCallers, userCodes, userListCodes } from './access-token.js';
import { contentEncoding, json, type OpenApiPart, ref } from './document.js';

const path = '/api/public/v0/user_suppression';
const tag = 'Suppressed users';

export const suppressionPart: OpenApiPart = {
  tag: {
    name: tag,
    description:
      'Keeps users out: what is sent about them is answered as if it was stored, and is not stored, by every endpoint and in every environment of the account. With the access tokens of user deletion.',
  },
  schemas: {
    Suppression: suppressionSchema,
    Suppressed: suppressedSchema,
    SuppressionOfUser: suppressionSchemas.ofUser,
    SuppressionCounts: suppressionSchemas.counts,
    SuppressionLookup: suppressionUsersSchema,
    SuppressionLookedUp: suppressionLookupSchema,
  },
  paths: {
    [path]: {
      post: {
        operationId: 'suppressUsers',
        tags: [tag],
        summary: 'Suppress users, or free them',
        description: `It holds from the answer on: no record of these users that is sent later is stored, nor of the users that they are merged with at that time. An anonymous user who is identified as one of them later is suppressed by that. What is stored already stays: submit a deletion too. Freeing a user takes back every suppression that reaches this user, and so frees others that were suppressed for the same reason. May be repeated. ${suppressions.requestsPerSecondMax} requests a second per token.`,
        security: byAccessToken,
        parameters: [contentEncoding],
        requestBody: { required: true, content: json(ref('Suppression')) },
        responses: {
          200: { description: 'It holds.', content: json(ref('Suppressed')) },
          ...refusalsToCallers([...userListCodes, 'not_possible', 'unknown']),
        },
      },
      get: {
        operationId: 'lookUpSuppression',
        tags: [tag],
        summary: 'Whether a user is suppressed, or how many are',
        description:
          'With identity, user_id or anonymous_id: whether records of this user are left out. Without: how many users are suppressed, and how many records were left out. A name in a query gets into the logs of proxies; the look-up by POST keeps it out of them.',
        security: byAccessToken,
        parameters: [
          { name: 'identity', in: 'query', required: false, schema: { type: 'string' } },
          { name: 'user_id', in: 'query', required: false, schema: { type: 'string' } },
          { name: 'anonymous_id', in: 'query', required: false, schema: { type: 'string' } },
        ],
        responses: {
          200: {
            description: 'What is known.',
            content: json({ anyOf: [ref('SuppressionOfUser'), ref('SuppressionCounts')] }),
          },
          ...refusalsToCallers([...userCodes, 'invalid_parameter', 'unknown']),
        },
      },
    },
    [`${path}/lookup`]: {
      post: {
        operationId: 'lookUpSuppressions',
        tags: [tag],
        summary: 'Whether users are suppressed',
        description:
          'Names the users in the body, so that no proxy notes them as part of an address. Counts as a status request.',
        security: byAccessToken,
        parameters: [contentEncoding],
        requestBody: { required: true, content: json(ref('SuppressionLookup')) },
        responses: {
          200: { description: 'In the order asked.', content: json(ref('SuppressionLookedUp')) },
          ...refusalsToCallers([...userListCodes, 'unknown']),
        },
      },
    },
  },
};
