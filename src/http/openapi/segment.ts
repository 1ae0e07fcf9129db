// The part of the OpenAPI document about Segment's protocol.

import { bodies, counts } from '../../contract/limits.js';
import { segmentBatchSchema, segmentMessageSchema } from '../../contract/segment.js';
import { type Doc, type Examples, json, type OpenApiPart, ref, repeatsHeader } from './document.js';

const tag = "Segment's protocol";

const cors = {
  'Access-Control-Allow-Origin': {
    required: true,
    description: 'Pages of any site may send.',
    schema: { type: 'string', enum: ['*'] },
  },
};
const message = {
  messageId: 'node-next-1772368200250-0f6c1a52',
  timestamp: '2026-03-01T12:30:00.250Z',
  userId: 'ada@example.com',
};
const batchExamples: Examples = {
  batch: {
    summary: 'As a library for servers sends it',
    value: {
      batch: [
        { ...message, type: 'track', event: 'Order Completed', properties: { amount: 12.5, gift: true } },
        {
          type: 'identify',
          messageId: 'node-next-1772368201250-1a2b3c4d',
          anonymousId: '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11',
          userId: 'ada@example.com',
          traits: { email: 'ada@example.com', plan: 'pro' },
        },
      ],
      sentAt: '2026-03-01T12:30:05.000Z',
    },
  },
};

/** The document of one path of the protocol, `batch` or a message type. The guards of admission and credentials add their refusals. */
export function segmentDoc(path: string): Doc {
  const isBatch = path === 'batch';
  return {
    id: `segment${path.slice(0, 1).toUpperCase()}${path.slice(1)}`,
    tag,
    summary: isBatch ? 'Many messages of any type' : `One message of the type ${path}`,
    body: {
      ...json(ref(isBatch ? 'SegmentBatch' : 'SegmentMessage'), isBatch ? batchExamples : {}),
      'text/plain': { schema: { type: 'string', contentMediaType: 'application/json' } },
    },
    answers: {
      200: {
        description: isBatch
          ? 'Stored, or stored before under the same messageId. If some messages were rejected, `accepted`, `rejected` and `errors` say which; if all were, `success` is false.'
          : 'Stored, or stored before under the same messageId. If the message was rejected, `success` is false and `errors` says why.',
        headers: { ...cors, ...repeatsHeader },
        content: json(ref('SegmentResult')),
      },
    },
    refuses: [
      'empty',
      'too_long',
      'invalid_text',
      'missing_user',
      'invalid_timestamp',
      'timestamp_out_of_range',
      'merges_strangers',
      'too_many_properties',
      'too_large_for_limit',
      'rate_limited',
      ...(isBatch ? (['too_many_records', 'unknown_message_type'] as const) : []),
    ],
    refusal: {
      headers: {
        ...Object.fromEntries([400, 413, 415, 429, 500, 503].map((status) => [status, cors])),
        401: { ...cors, 'WWW-Authenticate': { required: true, schema: { type: 'string' } } },
      },
    },
  };
}

export const segmentPart: OpenApiPart = {
  tag: {
    name: tag,
    description: `Takes what the libraries of Segment and RudderStack send, unchanged. Open to pages. Credentials: HTTP Basic with the app_id as user name, or \`writeKey\` in the body. A message takes at most ${bodies.singleBytesMax} bytes of body, a batch ${bodies.segmentBytesMax} and ${counts.segmentMessagesMax} messages. Each message counts once towards the limits bulk_app and bulk_identity, counted separately from other endpoints; like those of all endpoints, its records count towards app_records and app_bytes. /v1/t, /i, /p, /s, /a, /g and /b are the same as the full names.`,
  },
  schemas: {
    SegmentMessage: segmentMessageSchema,
    SegmentBatch: segmentBatchSchema,
    SegmentResult: {
      type: 'object',
      required: ['success'],
      properties: {
        success: { type: 'boolean' },
        accepted: { type: 'integer', minimum: 0 },
        rejected: { type: 'integer', minimum: 1 },
        errors: { type: 'array', items: { type: 'object' } },
      },
    },
  },
  securitySchemes: {
    segmentKey: {
      type: 'http',
      scheme: 'basic',
      description: 'The app_id, or a write key, as user name; no password.',
    },
  },
};
