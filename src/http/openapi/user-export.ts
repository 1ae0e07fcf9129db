// The part of the OpenAPI document about exports.

import { exportFormats, exportLineSchema, userExportSchema } from '../../contract/answers.js';
import { userExports } from '../../contract/limits.js';
import { exportSchema } from '../../contract/schemas.js';
import { byAccessToken, refusalsToCallers, userListCodes } from './access-token.js';
import { contentEncoding, ignoredHeader, json, type OpenApiPart, ref } from './document.js';

const tag = 'User export';
const exportId = {
  name: 'user_export_id',
  in: 'path',
  required: true,
  schema: { type: 'string' },
  example: '7d1b9e64-0c57-4d8a-8f0e-3b1c2a4d5e6f',
};

export const formatParameter = {
  name: 'format',
  in: 'query',
  description: `With zip an archive for the person whom it is about: pages of HTML, each with at most ${userExports.pageRecordsMax} records, and beside each the same lines of JSON. An archive that broke off cannot be opened.`,
  schema: { type: 'string', enum: exportFormats, default: 'ndjson' },
} as const;

export const exportPart: OpenApiPart = {
  tag: {
    name: tag,
    description: `Everything that is held about users, in all environments of the account: what a deletion at the same moment would delete. An export is there for ${userExports.keptMs / 3_600_000} hours, for the account that asked for it. A deletion of one of its users that is submitted later ends it.`,
  },
  schemas: { Export: exportSchema, UserExport: userExportSchema, ExportLine: exportLineSchema },
  paths: {
    '/api/public/v0/user_export': {
      post: {
        operationId: 'submitExport',
        tags: [tag],
        summary: 'Ask what is held about users',
        description: 'Every record acknowledged before belongs to it. Unknown users and repeats are fine.',
        security: byAccessToken,
        parameters: [contentEncoding],
        requestBody: { required: true, content: json(ref('Export')) },
        responses: {
          201: {
            description: 'Accepted; ask for its status.',
            headers: ignoredHeader,
            content: json(ref('UserExport')),
          },
          ...refusalsToCallers([...userListCodes, 'unknown']),
        },
      },
    },
    '/api/public/v0/user_export/{user_export_id}': {
      get: {
        operationId: 'readExportStatus',
        tags: [tag],
        summary: 'Whether an export can be read',
        security: byAccessToken,
        parameters: [exportId],
        responses: {
          200: { description: 'Its status.', content: json(ref('UserExport')) },
          ...refusalsToCallers(['not_found']),
        },
      },
    },
    '/api/public/v0/user_export/{user_export_id}/data': {
      get: {
        operationId: 'readExportData',
        tags: [tag],
        summary: 'Read an export',
        description: `Lines of JSON, read while they are sent. The lines of users come first, and the line of the kind end is the last; all others are in no order. A body without that line broke off: ask again. ${userExports.downloads.ofAccountMax} downloads of an account at a time, each for at most ${userExports.downloadMsMax / 60_000} minutes.`,
        security: byAccessToken,
        parameters: [
          exportId,
          formatParameter,
          {
            name: 'Accept-Encoding',
            in: 'header',
            description: 'With gzip the lines are compressed.',
            schema: { type: 'string' },
          },
        ],
        responses: {
          200: {
            description: 'The lines, each of them an ExportLine.',
            headers: {
              'Content-Encoding': {
                description: 'gzip if that was asked for.',
                schema: { type: 'string', enum: ['gzip'] },
              },
            },
            content: {
              'application/x-ndjson': { schema: ref('ExportLine') },
              'application/zip': { schema: { type: 'string', contentMediaType: 'application/zip' } },
            },
          },
          ...refusalsToCallers(['invalid_parameter', 'not_found', 'not_complete']),
        },
      },
    },
  },
};
