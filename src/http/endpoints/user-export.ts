// Exports: what is held about some users. Asked for, and asked about, under the access tokens of the deletion API, with its
// 401 and 404; the data is read while it is sent.

import type { HttpRequest } from 'uWebSockets.js';
import { pipeline } from 'node:stream';
import { createGzip } from 'node:zlib';
import { StateNotLoaded } from '../../accounts/registry.js';
import { allowStatusRequest, type Caller, callerOfToken } from '../../accounts/tokens.js';
import { refusalOf } from '../../admin/access.js';
import { type Actor, type AuditOptions, audited } from '../../audit/audit.js';
import { bodies, limitedRetrySeconds } from '../../contract/limits.js';
import { type OutcomeCode, outcomes, rejection } from '../../contract/outcomes.js';
import { mayDo } from '../../contract/roles.js';
import type { SubmitOptions } from '../../deletion/submit.js';
import type { Download, Downloads } from '../../export/downloads.js';
import { readExportTargets } from '../../export/input.js';
import { ExportEnded, type ReadOptions, readUsersRecords } from '../../export/read.js';
import { isComplete, readExport, type StoredExport } from '../../export/request.js';
import { submitExport } from '../../export/submit.js';
import { parseDocument } from '../../ingest/document.js';
import type { Log } from '../../log.js';
import type { AnswerStream } from '../protocol/answer-stream.js';
import { readBearer } from '../protocol/authorization.js';
import { readJsonBody } from '../protocol/body.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { type Route, withoutBody } from '../protocol/server.js';
import type { AdminCallers } from './admin-caller.js';
import { answerOrFail, type Failing, unauthorized } from './token-caller.js';

export type ExportApiOptions = {
  /** Undefined until the deployment was read from Redis. */
  readonly submission: () => SubmitOptions | undefined;
  readonly audit: AuditOptions;
  readonly reading: ReadOptions;
  readonly downloads: Downloads;
  readonly publicBaseUrl: string;
  readonly log: Log;
};

const path = '/api/public/v0/user_export';

export function exportRoutes(options: ExportApiOptions): Route[] {
  return [
    { method: 'post', path, handle: (exchange) => submit(options, exchange) },
    { method: 'get', path: `${path}/:id`, handle: (exchange, req) => status(options, exchange, req) },
    { method: 'get', path: `${path}/:id/data`, handle: (exchange, req) => data(options, exchange, req) },
  ];
}

function submit(options: ExportApiOptions, exchange: Exchange): void {
  const accessToken = readBearer(exchange.framing.authorization);
  if (accessToken === undefined) return unauthorized(withoutBody(exchange));
  const { address } = exchange;
  // The token is looked up while the body arrives, so the body of a caller without a token is never parsed.
  const lookup = callerOfToken(options.reading.redis, accessToken);
  lookup.catch(() => undefined);
  readJsonBody(exchange, bodies.singleBytesMax, (body, owned) => {
    const kept = owned ? body : Buffer.from(body);
    answerOrFail(exchange, options, async () => {
      const caller = await lookup;
      if (caller === undefined) return unauthorized(exchange);
      if (!(await allowStatusRequest(options.reading.redis, accessToken))) return limited(exchange);
      await accept(options, exchange, caller, address, kept);
    });
  });
}

async function accept(
  options: ExportApiOptions,
  exchange: Exchange,
  caller: Caller,
  address: string,
  body: Buffer,
): Promise<void> {
  const document = parseDocument(body);
  if ('code' in document) return exchange.refuse(document);
  const targets = readExportTargets(document);
  if ('code' in targets) return exchange.refuse(targets);
  const submission = options.submission();
  if (submission === undefined) throw new StateNotLoaded();
  const submitted = await audited(
    options.audit,
    ...actionOf(caller, address, 'submit_export', { users: targets.length }),
    () => submitExport(submission, caller.accountId, targets),
    {
      endingOf: (request) =>
        request === 'too_many'
          ? { outcome: 'refused' }
          : { outcome: 'done', details: { user_export_id: request.user_export_id } },
      outcomeOfError: (error) => (error instanceof StateNotLoaded ? 'refused' : 'unknown'),
    },
  );
  if (submitted === 'too_many') {
    return refuse(exchange, 'rate_limited', 'The account has too many exports.', [
      ['Retry-After', String(limitedRetrySeconds.exports)],
    ]);
  }
  exchange.reply(201, JSON.stringify(statusOf(options, submitted.user_export_id, false)));
}

function statusOf({ publicBaseUrl }: ExportApiOptions, id: string, complete: boolean) {
  return {
    user_export_location: `${publicBaseUrl}${path}/${id}`,
    user_export_id: id,
    status: complete ? 'complete' : 'pending',
  };
}

function status(options: ExportApiOptions, exchange: Exchange, req: HttpRequest): void {
  answerForExport(options, exchange, req, async (request, epoch) => {
    const complete = await isComplete(options.reading.redis, epoch, request);
    exchange.reply(200, JSON.stringify(statusOf(options, request.user_export_id, complete)));
  });
}

function data(options: ExportApiOptions, exchange: Exchange, req: HttpRequest): void {
  // Of a caller who has gone meanwhile nothing can be read any more.
  const { address } = exchange;
  const gzip = acceptsGzip(req.getHeader('accept-encoding'));
  answerForExport(options, exchange, req, (request, epoch, { keyId, appId }) =>
    sendAudited(
      options,
      exchange,
      request,
      epoch,
      { kind: 'api_key', name: keyId, address },
      { appId, gzip },
    ),
  );
}

/** The same on ADMIN_PORT, for whoever may read exports of its account. */
export function accountExportRoute(options: ExportApiOptions, callers: AdminCallers): Route {
  return {
    method: 'get',
    path: '/admin/v1/user_exports/:user_export_id/data',
    handle: (exchange, req) => {
      const id = req.getParameter(0) ?? '';
      const gzip = acceptsGzip(req.getHeader('accept-encoding'));
      const found = callers.find(exchange, req);
      withoutBody(exchange);
      if ('refused' in found)
        return exchange.attend(found.refused.then((refuseCaller) => refuseCaller(exchange)));
      answerOrFail(exchange, failingOf(options, exchange), async () => {
        const caller = await found.caller;
        if (typeof caller === 'function') return caller(exchange);
        const { principal, actor } = caller;
        if (!mayDo(principal.role, 'readExport'))
          return refuse(exchange, 'forbidden', outcomes.forbidden.meaning);
        const request = exportIdForm.test(id) ? await readExport(options.reading.redis, id) : undefined;
        if (request === undefined || refusalOf(principal, 'readExport', request.account_id) !== undefined)
          return refuse(exchange, 'not_found', outcomes.not_found.meaning);
        await sendAudited(options, exchange, request, epochOf(options), actor, { gzip });
      });
    },
  };
}

type Sending = { readonly appId?: string; readonly gzip: boolean };

/** Sends an export that is complete, under the audit log. */
async function sendAudited(
  options: ExportApiOptions,
  exchange: Exchange,
  request: StoredExport,
  epoch: string,
  actor: Actor,
  { appId, gzip }: Sending,
): Promise<void> {
  if (!(await isComplete(options.reading.redis, epoch, request))) {
    return refuse(exchange, 'not_complete', outcomes.not_complete.meaning, [['Retry-After', '1']]);
  }
  const download = options.downloads.begin(request.account_id);
  if (download === undefined) return refuse(exchange, 'overloaded', 'Too many exports are being read.');
  exchange.onGone(download.abort);
  try {
    await audited(
      options.audit,
      actor,
      {
        action: 'read_export',
        account_id: request.account_id,
        ...(appId === undefined ? {} : { app_id: appId }),
        details: { user_export_id: request.user_export_id },
      },
      () => send(options, exchange, request, download, gzip),
      {
        endingOf: (records) => ({ outcome: 'done', details: { records } }),
        outcomeOfError: () => 'unknown',
      },
    );
  } finally {
    download.end();
  }
}

/** The deployment's, once it was read. */
function epochOf(options: ExportApiOptions): string {
  const submission = options.submission();
  if (submission === undefined) throw new StateNotLoaded();
  return submission.epoch;
}

/**
 * Sends the lines of an export; settles with the number of records. The answer begins with the first lines, so whatever fails
 * before them is still answered with its status. What fails later cuts the answer off.
 */
async function send(
  { reading }: ExportApiOptions,
  exchange: Exchange,
  request: StoredExport,
  download: Download,
  gzip: boolean,
): Promise<number> {
  const lines = readUsersRecords(reading, request, download.signal);
  let records = 0;
  let stream: AnswerStream | undefined;
  async function* pieces(): AsyncGenerator<Buffer> {
    for await (const { bytes, records: count } of lines) {
      records += count;
      yield bytes;
    }
    yield Buffer.from(`${JSON.stringify({ kind: 'end', records })}\n`);
  }
  const all = pieces();
  try {
    const first = await all.next();
    stream = exchange.stream(headersOf(gzip), 'application/x-ndjson');
    if (stream === undefined) throw new DownloadBroken();
    const body = startingWith(first.value as Buffer, all);
    for await (const bytes of gzip ? compressed(body) : body) {
      if (!(await stream.write(bytes))) throw new DownloadBroken();
    }
    stream.end();
    return records;
  } catch (error) {
    const isBroken = download.signal.aborted;
    download.abort();
    stream?.cutOff();
    throw isBroken ? new DownloadBroken() : error;
  } finally {
    await all.return(undefined);
  }
}

/** The client is gone, or the download took too long. */
class DownloadBroken extends Error {}

async function* startingWith(first: Buffer, others: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield* others;
}

async function* compressed(pieces: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  // The fastest level: CPU is scarcer than the bandwidth of a download.
  const gzip = createGzip({ level: 1 });
  // An error of the pieces is also one of what they are compressed to.
  pipeline(pieces, gzip, () => undefined);
  for await (const bytes of gzip) yield bytes as Buffer;
}

function headersOf(gzip: boolean): Headers {
  return [
    ['Cache-Control', 'no-store'],
    ['Vary', 'Accept-Encoding'],
    ...(gzip ? ([['Content-Encoding', 'gzip']] as const) : []),
  ];
}

/** Whether a client names gzip, and not only to refuse it. */
function acceptsGzip(header: string): boolean {
  return header
    .split(',')
    .some((coding) => /^\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*$).*)?$/i.test(coding));
}

/** Goes on with the export that the path names, if it is the caller's. */
function answerForExport(
  options: ExportApiOptions,
  exchange: Exchange,
  req: HttpRequest,
  answer: (request: StoredExport, epoch: string, caller: Caller) => Promise<void>,
): void {
  const { redis } = options.reading;
  const id = req.getParameter(0) ?? '';
  withoutBody(exchange);
  const accessToken = readBearer(exchange.framing.authorization);
  if (accessToken === undefined) return unauthorized(exchange);
  answerOrFail(exchange, failingOf(options, exchange), async () => {
    const caller = await callerOfToken(redis, accessToken);
    if (caller === undefined) return unauthorized(exchange);
    if (!(await allowStatusRequest(redis, accessToken))) return limited(exchange);
    const request = exportIdForm.test(id) ? await readExport(redis, id) : undefined;
    if (request?.account_id !== caller.accountId) {
      return refuse(exchange, 'not_found', outcomes.not_found.meaning);
    }
    await answer(request, epochOf(options), caller);
  });
}

function failingOf({ log }: ExportApiOptions, exchange: Exchange): Failing {
  return { log, code: 'overloaded', isAnswered: (error) => isAnswered(exchange, error) };
}

const exportIdForm = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

function actionOf(
  { accountId: account_id, appId: app_id, keyId }: Caller,
  address: string,
  action: string,
  details: Readonly<Record<string, unknown>>,
) {
  return [
    { kind: 'api_key', name: keyId, address },
    { action, account_id, app_id, details },
  ] as const;
}

/** Answers what only exports know. An answer that has begun is cut off by whoever sends it. */
function isAnswered(exchange: Exchange, error: unknown): boolean {
  if (error instanceof ExportEnded) refuse(exchange, 'not_found', outcomes.not_found.meaning);
  return error instanceof DownloadBroken || error instanceof ExportEnded;
}

function limited(exchange: Exchange): void {
  refuse(exchange, 'rate_limited', 'Too many requests about exports by this token.', [
    ['Retry-After', String(limitedRetrySeconds.statusRequests)],
  ]);
}

function refuse(exchange: Exchange, code: OutcomeCode, message: string, headers: Headers = []): void {
  exchange.refuse(rejection(code, message), {}, headers);
}
