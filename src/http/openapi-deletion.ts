// The part of the OpenAPI document about user deletion: tokens, submissions, status.

import {
  deletionStatusSchema,
  deletionSubmittedSchema,
  tokenSchema,
  unauthorizedSchema,
} from '../contract/answers.js';
import { deletions } from '../contract/limits.js';
import { deletionSchema } from '../contract/schemas.js';
import { bodyCodes, contentEncoding, json, type OpenApiPart, ref, refusals } from './openapi.js';

const exampleId = '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11';
const tag = 'User deletion';
const unauthorized = { schemas: { 401: ref('Unauthorized') }, headers: { 401: challenge() } };

export const deletionPart: OpenApiPart = {
  tag: {
    name: tag,
    description:
      'Deletes users with all their records in every environment of the account: everything acknowledged before the submission, nothing after its answer. Only the Main Production environment of an account gets tokens; its API key is created by an administrator.',
  },
  schemas: {
    Deletion: deletionSchema,
    DeletionSubmitted: deletionSubmittedSchema,
    DeletionStatus: deletionStatusSchema,
    Token: tokenSchema,
    Unauthorized: unauthorizedSchema,
  },
  securitySchemes: {
    apiKey: {
      type: 'http',
      scheme: 'basic',
      description: 'The app_id as user name, the API key as password.',
    },
    accessToken: { type: 'http', scheme: 'bearer', description: 'The access_token of the token endpoint.' },
  },
  paths: {
    '/api/public/v0/auth_token': {
      post: {
        operationId: 'createToken',
        tags: [tag],
        summary: 'Get an access token',
        description: `Good for ${deletions.tokenMsMax / 60_000} minutes. Ends before only when the API key is rotated or revoked, or when the environment stops being main. Twenty failures a minute from one address are refused further, and so is a token above ${deletions.liveTokensPerKeyMax} live ones of a key until one of them ends.`,
        security: [{ apiKey: [] }],
        responses: {
          200: { description: 'The token.', content: json(ref('Token')) },
          ...refusals(['unauthorized', 'rate_limited', 'overloaded', 'unknown'], unauthorized),
        },
      },
    },
    '/api/public/v0/user_deletion': {
      post: {
        operationId: 'submitDeletion',
        tags: [tag],
        summary: 'Delete users',
        description: 'Unknown users and repeats are fine. A deleted user who sends data again is a new user.',
        security: [{ accessToken: [] }],
        parameters: [contentEncoding],
        requestBody: { required: true, content: json(ref('Deletion')) },
        responses: {
          201: { description: 'Accepted; ask for its status.', content: json(ref('DeletionSubmitted')) },
          ...refusals(
            [
              ...bodyCodes,
              'missing_field',
              'invalid_type',
              'empty',
              'too_long',
              'invalid_text',
              'missing_user',
              'ambiguous_user',
              'invalid_user_id',
              'too_many_records',
              'unauthorized',
              'rate_limited',
              'overloaded',
              'unknown',
            ],
            unauthorized,
          ),
        },
      },
    },
    '/api/public/v0/deletion_status/{deletion_request_id}': {
      get: {
        operationId: 'readDeletionStatus',
        tags: [tag],
        summary: 'How far a deletion is',
        security: [{ accessToken: [] }],
        parameters: [
          {
            name: 'deletion_request_id',
            in: 'path',
            required: true,
            schema: { type: 'string' },
            example: exampleId,
          },
        ],
        responses: {
          200: { description: 'Its status.', content: json(ref('DeletionStatus')) },
          ...refusals(['unauthorized', 'not_found', 'rate_limited', 'overloaded', 'unknown'], unauthorized),
        },
      },
    },
  },
};

function challenge(): object {
  return {
    'WWW-Authenticate': {
      required: true,
      description: 'The scheme that the endpoint takes.',
      schema: { type: 'string' },
    },
  };
}
