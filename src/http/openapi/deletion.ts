// The part of the OpenAPI document about user deletion: its schemas, and the callbacks. Its routes carry their own documents.

import { tokenSchema, unauthorizedSchema } from '../../contract/answers.js';
import { callbacks } from '../../contract/limits.js';
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
} from '../../contract/privacy-answers.js';
import { deletionSchema, lookupSchema } from '../../contract/schemas.js';
import { json, type OpenApiPart, ref } from './document.js';

export const deletionTag = 'User deletion';
const tag = deletionTag;

export const deletionPart: OpenApiPart = {
  tag: {
    name: tag,
    description:
      'Deletes users with all their records in every environment of the account: everything acknowledged before the submission, nothing accepted after its answer. Only the Main Production environment of an account gets tokens; an administrator creates its API key.',
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
  webhooks: {
    deletionComplete: {
      post: {
        operationId: 'deletionComplete',
        tags: [tag],
        summary: 'A deletion of your account is complete',
        description: `Sent to the URL that an administrator has set for the account, or to try it out. Answer with 2xx within ${callbacks.callMsMax / 1000} seconds; otherwise the call is repeated for a day, at growing intervals, with the same body and a new signature. It may come twice: recognise repeats by deletion_request_id.`,
        security: [{}],
        parameters: [
          {
            name: 'Sluice-Signature',
            in: 'header',
            required: true,
            description:
              'v1 is the HMAC-SHA-256, in hexadecimal, of `t.BODY` (the unchanged body) with the secret that was shown when the URL was set. t is in seconds since 1970: refuse calls that are older than a few minutes.',
            schema: { type: 'string', pattern: '^t=[0-9]+,v1=[0-9a-f]{64}$' },
          },
        ],
        requestBody: {
          required: true,
          content: json({ anyOf: [ref('DeletionCall'), ref('TestCall')] }),
        },
        responses: { '2XX': { description: 'Received: it is not repeated.' } },
      },
    },
  },
};
