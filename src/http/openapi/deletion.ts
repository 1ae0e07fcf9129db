// The part of the OpenAPI document about user deletion: tokens, submissions, status.

import {
  callSchemas,
  deletionCertificateSchema,
  deletionListSchema,
  deletionLookupSchema,
  deletionPreviewSchema,
  deletionStatusSchema,
  deletionSubmittedSchema,
  deletionUsersSchema,
  signingKeySchema,
  tokenSchema,
  unauthorizedSchema,
} from '../../contract/answers.js';
import { deletionStates } from '../../contract/deletion-states.js';
import { callbacks, deletions, evidence } from '../../contract/limits.js';
import { deletionSchema, lookupSchema } from '../../contract/schemas.js';
import { byAccessToken, cursorParameter, refusalsToCallers, userListCodes } from './access-token.js';
import { contentEncoding, ignoredHeader, json, type OpenApiPart, ref, refusals } from './document.js';

const exampleId = '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11';
const tag = 'User deletion';

const idParameter = {
  name: 'deletion_request_id',
  in: 'path',
  required: true,
  schema: { type: 'string' },
  example: exampleId,
};
const asksForEvidence = ['still_pending', 'no_longer_kept'] as const;

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
    DeletionCertificate: deletionCertificateSchema,
    SigningKey: signingKeySchema,
    DeletionList: deletionListSchema,
    DeletionLookup: lookupSchema,
    DeletionLookedUp: deletionLookupSchema,
    DeletionUsers: deletionUsersSchema,
    DeletionPreview: deletionPreviewSchema,
    DeletionCall: callSchemas.complete,
    TestCall: callSchemas.test,
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
        description: `Good for ${deletions.tokenMsMax / 60_000} minutes. It ends earlier only when the API key is revoked, replaced or expired, or when the environment stops being main. After twenty failures a minute from one address further failures are answered 429; a right key gets its token whatever came before. A key may have ${deletions.liveTokensPerKeyMax} live tokens, and an account ${deletions.tokensPerAccountMax}; beyond that a new one is refused until one of them ends.`,
        security: [{ apiKey: [] }],
        responses: {
          200: { description: 'The token.', content: json(ref('Token')) },
          ...refusalsToCallers(['unknown']),
        },
      },
    },
    '/api/public/v0/user_deletion': {
      post: {
        operationId: 'submitDeletion',
        tags: [tag],
        summary: 'Delete users',
        description:
          'Unknown users and repeats are fine. A deleted user who sends data again is a new user. With a reference a request whose answer was lost can be sent again without being carried out twice. With `suppress` the users are suppressed first; so they may be suppressed although the deletion is refused (409, 429 or 503). It is refused with 503 while records that were accepted before are not stored, since they may merge the users with others. With `dry_run` nobody is suppressed.',
        security: byAccessToken,
        parameters: [contentEncoding],
        requestBody: { required: true, content: json(ref('Deletion')) },
        responses: {
          201: {
            description: 'Accepted; ask for its status.',
            headers: ignoredHeader,
            content: json(ref('DeletionSubmitted')),
          },
          200: {
            description:
              'If you have submitted these users by this reference before: that request, with its status of now. With dry_run: what would be found.',
            headers: ignoredHeader,
            content: json({ anyOf: [ref('DeletionSubmitted'), ref('DeletionPreview')] }),
          },
          ...refusalsToCallers([...userListCodes, 'not_possible', 'reference_taken', 'unknown']),
        },
      },
    },
    '/api/public/v0/user_deletions': {
      get: {
        operationId: 'listDeletions',
        tags: [tag],
        summary: "The account's deletions, the newest first",
        description: `At most ${deletions.listedMax} a page. A page may be empty although others follow: it looks at ${deletions.listLookedAtMax} requests at most. An empty parameter is not given. Counts as a status request.`,
        security: byAccessToken,
        parameters: [
          {
            name: 'state',
            in: 'query',
            description: 'Only those with this status, or in this state.',
            schema: { type: 'string', enum: ['', 'pending', ...Object.keys(deletionStates)] },
          },
          {
            name: 'reference',
            in: 'query',
            description: 'Only those with this reference.',
            schema: { type: 'string' },
          },
          cursorParameter,
        ],
        responses: {
          200: { description: 'A page.', content: json(ref('DeletionList')) },
          ...refusalsToCallers(['invalid_parameter', 'unknown']),
        },
      },
    },
    '/api/public/v0/deletion_status/{deletion_request_id}': {
      get: {
        operationId: 'readDeletionStatus',
        tags: [tag],
        summary: 'The progress of a deletion',
        security: byAccessToken,
        parameters: [idParameter],
        responses: {
          200: { description: 'Its status.', content: json(ref('DeletionStatus')) },
          ...refusalsToCallers(['not_found', 'unknown']),
        },
      },
    },
    '/api/public/v0/deletion_status/{deletion_request_id}/users': {
      get: {
        operationId: 'listDeletedUsers',
        tags: [tag],
        summary: 'What was found of each user, by place in the submitted list',
        description: `For 30 days from the count on, once the deletion is complete. It names no user. At most ${evidence.usersPerPage} a page. Counts as a status request.`,
        security: byAccessToken,
        parameters: [idParameter, cursorParameter],
        responses: {
          200: { description: 'A page.', content: json(ref('DeletionUsers')) },
          ...refusalsToCallers(['invalid_parameter', 'not_found', ...asksForEvidence, 'unknown']),
        },
      },
    },
    '/api/public/v0/deletion_status/{deletion_request_id}/lookup': {
      post: {
        operationId: 'lookUpDeletedUsers',
        tags: [tag],
        summary: 'What was found of users whom you name',
        description: `For 30 days from the count on, once the deletion is complete. Identities are similar if they are the same in lower case, letter by letter as Unicode maps them, and without blanks (spaces, tabs, line breaks) around them. Counts as a status request.`,
        security: byAccessToken,
        parameters: [idParameter, contentEncoding],
        requestBody: { required: true, content: json(ref('DeletionLookup')) },
        responses: {
          200: {
            description: 'In the order asked.',
            headers: ignoredHeader,
            content: json(ref('DeletionLookedUp')),
          },
          ...refusalsToCallers([...userListCodes, 'not_found', ...asksForEvidence, 'unknown']),
        },
      },
    },
    '/api/public/v0/deletion_status/{deletion_request_id}/certificate': {
      get: {
        operationId: 'readDeletionCertificate',
        tags: [tag],
        summary: 'The signed certificate of a complete deletion',
        description:
          'The same whenever it is asked for, so it can be fetched later. Counts as a status request.',
        security: byAccessToken,
        parameters: [idParameter],
        responses: {
          200: { description: 'The certificate.', content: json(ref('DeletionCertificate')) },
          ...refusalsToCallers(['not_found', 'still_pending', 'unknown']),
        },
      },
    },
    '/api/public/v0/signing_key': {
      get: {
        operationId: 'readSigningKey',
        tags: [tag],
        summary: 'The public key of certificates',
        security: [{}],
        responses: {
          200: { description: 'The key.', content: json(ref('SigningKey')) },
          ...refusals(['overloaded', 'unknown']),
        },
      },
    },
  },
  webhooks: {
    deletionComplete: {
      post: {
        operationId: 'deletionComplete',
        tags: [tag],
        summary: 'A deletion of your account is complete',
        description: `Sent to the URL that an administrator has set for the account, or to try it out. Answer with 2xx within ${callbacks.callMsMax / 1000} seconds; else it comes again, more and more rarely, for a day, with the same body and a new signature. It may come twice: go by deletion_request_id.`,
        security: [{}],
        parameters: [
          {
            name: 'Sluice-Signature',
            in: 'header',
            required: true,
            description:
              'v1 is the HMAC-SHA-256, in hexadecimal, of `t.BODY` (the body as it came) under the secret that was shown when the URL was set. t is in seconds since 1970: refuse what is older than a few minutes.',
            schema: { type: 'string', pattern: '^t=[0-9]+,v1=[0-9a-f]{64}$' },
          },
        ],
        requestBody: {
          required: true,
          content: json({ anyOf: [ref('DeletionCall'), ref('TestCall')] }),
        },
        responses: { '2XX': { description: 'It is taken, and does not come again.' } },
      },
    },
  },
};
