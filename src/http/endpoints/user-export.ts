// Exports of what is held about users: requesting one, its status, and its download. Access tokens, 401 and 404 are those of the deletion
// API.

import type { HttpRequest } from 'uWebSockets.js';
import { isKeyValid } from '../../accounts/tokens.js';
import { refusalOf, rightsElsewhere } from '../../admin/access.js';
import { bodies, counts, limitedRetrySeconds, userExports } from '../../contract/limits.js';
import { exportFormats, exportLineSchema, userExportSchema } from '../../contract/privacy-answers.js';
import { mayDo } from '../../contract/roles.js';
import { exportSchema } from '../../contract/schemas.js';
import type { Document } from '../../parsing/document.js';
import { isComplete, readExport, type StoredExport } from '../../privacy/export/request.js';
import { readExportTargets, submitExport } from '../../privacy/export/submit.js';
import { registryKeys } from '../../redis/keys.js';
import { readOnReplicas } from '../../redis/replicas.js';
import { type Actor, audited } from '../../registry/audit/audit.js';
import {
  answered,
  documents,
  ignoredHeader,
  inPath,
  json,
  type OpenApiPart,
  operation,
  ref,
} from '../openapi/document.js';
import type { Exchange } from '../protocol/exchange.js';
import type { Route } from '../protocol/server.js';
import { type AdminCallers, adminGuard, adminTag, refuseUnread, rolesText } from './admin-caller.js';
import { acceptsGzip, type SendOptions, sendExport, wantedOf } from './export-download.js';
import {
  type AuditedCaller,
  answerForCaller,
  answerOrFail,
  exportRequests,
  isRequestId,
  publicApi,
  readFromCaller,
  refuse,
  tokenGuard,
  type UserRequestOptions,
  userListGuard,
  type WithUsers,
} from './token-caller.js';

const path = `${publicApi}/user_export`;

export function exportRoutes(options: UserRequestOptions): Route[] {
  const asked = { ...options, limit: exportRequests };
  return [
    {
      method: 'post',
      path,
      handle: (exchange) =>
        readFromCaller(exchange, asked, exportsBody, (caller, document) =>
          submit(options, exchange, caller, document),
        ),
      doc: submitDoc,
    },
    {
      method: 'get',
      path: `${path}/:user_export_id`,
      handle: (exchange, req) => status(options, exchange, req),
      doc: statusDoc,
    },
    {
      method: 'get',
      path: `${path}/:user_export_id/data`,
      handle: (exchange, req) => data(options, exchange, req),
      doc: dataDoc,
    },
  ];
}

const tag = 'User export';
const underToken = documents(tag, tokenGuard);
const withUsers = documents(tag, tokenGuard, userListGuard);
const exportId = inPath('user_export_id', '7d1b9e64-0c57-4d8a-8f0e-3b1c2a4d5e6f');
const formatParameter = {
  name: 'format',
  in: 'query',
  description: `zip is an archive for the person whom it is about: HTML pages with at most ${userExports.pageRecordsMax} records each, and the same as CSV and as lines of JSON. An archive that broke off cannot be opened.`,
  schema: { type: 'string', enum: exportFormats, default: 'ndjson' },
} as const;

const zoneParameter = {
  name: 'zone',
  in: 'query',
  description:
    'The time zone of the times in an archive, such as Europe/Rome. The lines of JSON are always in UTC.',
  schema: { type: 'string', default: 'UTC' },
} as const;

export const exportPart: OpenApiPart = {
  tag: {
    name: tag,
    description: `Everything that is held about users, in all environments of the account: what a deletion at the same moment would delete. An export is available for ${userExports.keptMs / 3_600_000} hours to the account that asked for it. If one of its users is deleted later, the export ends.`,
  },
  schemas: { Export: exportSchema, UserExport: userExportSchema, ExportLine: exportLineSchema },
};

const submitDoc = withUsers({
  id: 'submitExport',
  summary: 'Ask what is held about users',
  description: 'It contains every record acknowledged before. Unknown and repeated users are allowed.',
  body: json(ref('Export')),
  answers: {
    201: answered('Accepted; ask for its status.', 'UserExport', ignoredHeader),
  },
  refuses: ['unknown'],
});

const statusDoc = underToken({
  id: 'readExportStatus',
  summary: 'Whether an export can be read',
  parameters: [exportId],
  answers: { 200: answered('Its status.', 'UserExport') },
  refuses: ['not_found'],
});

const dataDoc = underToken({
  id: 'readExportData',
  summary: 'Read an export',
  description: `Lines of JSON, read while they are sent. The lines of users come first and the line of the kind end comes last; all others are in no particular order. A body without the last line broke off: ask again. An account may have ${userExports.downloads.ofAccountMax} downloads at a time, each for at most ${userExports.downloadMsMax / 60_000} minutes.`,
  parameters: [
    exportId,
    formatParameter,
    zoneParameter,
    {
      name: 'Accept-Encoding',
      in: 'header',
      description: 'If it names gzip, the lines are compressed.',
      schema: { type: 'string' },
    },
  ],
  answers: {
    200: {
      description: 'The lines, each of them an ExportLine.',
      headers: {
        'Content-Encoding': {
          description: 'gzip if the client accepts it.',
          schema: { type: 'string', enum: ['gzip'] },
        },
      },
      content: {
        'application/x-ndjson': { schema: ref('ExportLine') },
        'application/zip': { schema: { type: 'string', contentMediaType: 'application/zip' } },
      },
    },
  },
  refuses: ['invalid_parameter', 'not_found', 'not_complete'],
});

const exportsBody: WithUsers = {
  bytesMax: bodies.singleBytesMax,
  list: { field: 'users', recordsMax: counts.exportUsersMax },
  schema: exportSchema,
};

async function submit(
  options: UserRequestOptions,
  exchange: Exchange,
  { accountId: account_id, appId: app_id, actor }: AuditedCaller,
  document: Document,
): Promise<void> {
  const targets = readExportTargets(document);
  if ('code' in targets) return exchange.refuse(targets);
  const deployment = options.deployment();
  const submitted = await audited(
    options.audit,
    actor,
    { action: 'submit_export', account_id, app_id, details: { users: targets.length } },
    () => submitExport(deployment, account_id, targets),
    {
      endingOf: (request) =>
        typeof request === 'string'
          ? { outcome: 'refused' }
          : { outcome: 'done', details: { user_export_id: request.user_export_id } },
    },
  );
  if (typeof submitted === 'string') {
    return refuse(exchange, 'rate_limited', whyTooMany[submitted], limitedRetrySeconds.exports);
  }
  exchange.reply(201, JSON.stringify(statusOf(options, submitted.user_export_id, false)));
}

const whyTooMany = {
  too_many:
    'The account has too many exports, or they name too many users: each ends a day after it was requested.',
  full: 'The exports of all accounts already name the maximum number of users: try again later.',
};

function statusOf({ publicBaseUrl }: UserRequestOptions, id: string, complete: boolean) {
  return {
    user_export_location: `${publicBaseUrl}${path}/${id}`,
    user_export_id: id,
    status: complete ? 'complete' : 'pending',
  };
}

function status(options: UserRequestOptions, exchange: Exchange, req: HttpRequest): void {
  answerForExport(options, exchange, req, async (request) => {
    const complete = await readOnReplicas(options.redis, registryKeys.exports, () =>
      isReady(options, request),
    );
    exchange.reply(200, JSON.stringify(statusOf(options, request.user_export_id, complete)));
  });
}

function data(options: UserRequestOptions, exchange: Exchange, req: HttpRequest): void {
  const gzip = acceptsGzip(req.getHeader('accept-encoding'));
  const wanted = wantedOf(exchange.query);
  answerForExport(options, exchange, req, async (request, caller) => {
    if ('code' in wanted) return exchange.refuse(wanted);
    const { actor, appId } = caller;
    const watch = (stop: () => void) => options.watchAccess(() => isKeyValid(options.redis, caller), stop);
    await sendAudited(options, exchange, request, actor, { appId, ...wanted, gzip, watch });
  });
}

const mayRead = rightsElsewhere.readExport;

/** The same on ADMIN_PORT, for callers who may read the account's exports. */
export function accountExportRoute(options: UserRequestOptions, callers: AdminCallers): Route {
  return {
    method: 'get',
    path: '/admin/v1/user_exports/:user_export_id/data',
    doc: operation(
      {
        id: 'readExportOfAccount',
        tag: adminTag,
        summary: 'Download an export that is complete',
        description: `As in the export API. ${rolesText(mayRead)}`,
        parameters: [inPath('user_export_id'), formatParameter, zoneParameter],
        answers: {
          200: {
            description: 'The records.',
            content: {
              'application/x-ndjson': { schema: { type: 'string' } },
              'application/zip': { schema: { type: 'string' } },
            },
          },
        },
        refuses: ['invalid_parameter', 'not_found', 'not_complete'],
      },
      adminGuard,
    ),
    handle: (exchange, req) => {
      const id = req.getParameter(0) ?? '';
      const gzip = acceptsGzip(req.getHeader('accept-encoding'));
      const wanted = wantedOf(exchange.query);
      const found = callers.find(exchange, req);
      if ('refused' in found) return refuseUnread(exchange, found.refused);
      exchange.dropBody();
      answerOrFail(exchange, reading(options), async () => {
        const caller = await found.caller;
        if (typeof caller === 'function') return caller(exchange);
        const { principal, actor, again } = caller;
        if (!mayDo(principal.role, mayRead)) return refuse(exchange, 'forbidden');
        const request = await findExport(options, id);
        if (request === undefined || refusalOf(principal, mayRead, request.account_id) !== undefined)
          return refuse(exchange, 'not_found');
        if ('code' in wanted) return exchange.refuse(wanted);
        const mayGoOn = async () => {
          const now = await again();
          return now !== undefined && refusalOf(now.principal, mayRead, request.account_id) === undefined;
        };
        const watch = (stop: () => void) => options.watchAccess(mayGoOn, stop);
        await sendAudited(options, exchange, request, actor, { ...wanted, gzip, watch });
      });
    },
  };
}

type Sending = SendOptions & { readonly appId?: string };

/** Sends an export that is complete, with a line in the audit log. */
async function sendAudited(
  options: UserRequestOptions,
  exchange: Exchange,
  request: StoredExport,
  actor: Actor,
  { appId, ...how }: Sending,
): Promise<void> {
  if (!(await isReady(options, request))) return refuse(exchange, 'not_complete', undefined, 1);
  const { account_id, user_export_id } = request;
  const download = await options.downloads.begin(account_id);
  if (download === undefined) return refuse(exchange, 'overloaded', 'Too many exports are being read.');
  // The client may have disconnected while the download waited for its turn.
  if (exchange.ended) return download.end();
  exchange.onGone(download.abort);
  try {
    await audited(
      options.audit,
      actor,
      { action: 'read_export', account_id, app_id: appId, details: { user_export_id } },
      () => sendExport(options, exchange, request, download, how),
      {
        endingOf: (records) => ({ outcome: 'done', details: { records } }),
        outcomeOfError: () => 'unknown',
      },
    );
  } finally {
    download.end();
  }
}

/** Continues with the export that the path names, if it belongs to the caller. */
function answerForExport(
  options: UserRequestOptions,
  exchange: Exchange,
  req: HttpRequest,
  answer: (request: StoredExport, caller: AuditedCaller) => Promise<void>,
): void {
  const id = req.getParameter(0) ?? '';
  answerForCaller(exchange, { ...reading(options), limit: exportRequests }, async (caller) => {
    const request = await findExport(options, id);
    if (request?.account_id !== caller.accountId) return refuse(exchange, 'not_found');
    await answer(request, caller);
  });
}

/** The export with an id, on enough replicas; undefined if there is none. */
async function findExport({ redis }: UserRequestOptions, id: string): Promise<StoredExport | undefined> {
  if (!isRequestId(id)) return undefined;
  return readOnReplicas(redis, registryKeys.exports, () => readExport(redis, id));
}

function isReady({ redis, deployment }: UserRequestOptions, request: StoredExport): Promise<boolean> {
  return isComplete(redis, deployment().epoch, request);
}

/** For requests that only read: if they fail, nothing was stored. */
function reading({ redis, log }: UserRequestOptions) {
  return { redis, log, code: 'overloaded' as const };
}
