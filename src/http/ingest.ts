// The ingestion endpoints, one record or many: body → document → environment → prepared group → commit →
// answer.

import type { Environments, LiveEnvironment } from '../accounts/environments.js';
import { bodies } from '../contract/limits.js';
import { outcomes, type Rejection, rejection } from '../contract/outcomes.js';
import type { CommitResult, Committer } from '../ingest/commit.js';
import { type Document, parseDocument } from '../ingest/document.js';
import type { LimitKeys } from '../ingest/limit-key.js';
import type { Mending } from '../ingest/mend.js';
import {
  type ElementError,
  isBulk,
  type PrepareContext,
  prepare,
  preparePlain,
  type Ready,
} from '../ingest/prepare.js';
import type { Checked, RecordKind } from '../ingest/record-kind.js';
import type { RejectedRecords, RejectedSource } from '../ingest/rejected-records.js';
import type { NamedLimit } from '../ingest/request-limits.js';
import {
  recordsAccepted,
  recordsRejected,
  recordsRepeated,
  requestsLimited,
  requestsUnavailable,
} from '../metrics.js';
import { appIdOf, findEnvironment, notLoaded, refuseNumericAppId } from './app-id.js';
import { readJsonBody, tooLarge } from './body.js';
import type { Exchange, Headers } from './exchange.js';
import type { Handler } from './server.js';

export type IngestOptions = {
  readonly environments: Environments;
  /** Undefined until Redis has told the deployment. */
  readonly ingestion: () => Ingestion | undefined;
  readonly countMendings: (appId: string, mendings: ReadonlyMap<Mending, number>) => void;
  /** What is refused is noted there, once its environment is known. */
  readonly rejected: Pick<RejectedRecords, 'noteRequest' | 'noteElements'>;
};

/** What is needed to commit, once the deployment is known. */
export type Ingestion = { readonly limitKeys: LimitKeys; readonly committerOf: (shard: number) => Committer };

/** Makes the handler of the endpoint that takes records of this kind. */
export function ingest<T extends Checked>(kind: RecordKind<T>, options: IngestOptions): Handler {
  const { environments } = options;
  const endpoint = kind.name;
  const accepted = recordsAccepted.labels(endpoint);
  const repeated = recordsRepeated.labels(endpoint);
  const bytesMax = kind.bulk === undefined ? bodies.singleBytesMax : bodies.bulkBytesMax;

  function handle(exchange: Exchange): void {
    readJsonBody(exchange, bytesMax, (body, owned) => {
      if (!receivePlain(exchange, body, owned)) receive(exchange, body);
    });
  }

  /** The short way of usual requests; answers false, and has done nothing, when this is not one of them. */
  function receivePlain(exchange: Exchange, body: Buffer, owned: boolean): boolean {
    const ingestion = options.ingestion();
    if (ingestion === undefined) return false;
    const nowMs = Date.now();
    const events = kind.readPlain?.(body, owned, nowMs);
    if (events === undefined) return false;
    const environment = environments.get(events.appId);
    if (environment === undefined) return false;
    const context = { environment, limitKeys: ingestion.limitKeys, nowMs, strictBulk: false };
    const prepared = preparePlain(kind, events, context);
    if (prepared === undefined) return false;
    submit(exchange, prepared, environment, ingestion);
    return true;
  }

  function receive(exchange: Exchange, body: Buffer): void {
    const document = parseDocument(body);
    if ('code' in document) return refuse(exchange, document);
    const appId = appIdOf(document.value);
    if (typeof appId !== 'string') return refuse(exchange, appId);
    const bytes = body.length;
    const environment = environments.get(appId);
    if (bytes > bodies.singleBytesMax && !isBulk(kind, document)) {
      const reason = tooLarge(bodies.singleBytesMax);
      if (environment !== undefined) note(environment, reason, document, bytes);
      return refuse(exchange, reason);
    }

    if (environment !== undefined) return proceed(exchange, document, bytes, environment);
    const go = findEnvironment(environments, appId).then((found) => {
      if (!('code' in found)) proceed(exchange, document, bytes, found);
      else if (found.code === 'overloaded') unavailable(exchange, found);
      else refuse(exchange, found);
    });
    exchange.attend(go);
  }

  function proceed(
    exchange: Exchange,
    document: Document,
    bytes: number,
    environment: LiveEnvironment,
  ): void {
    const ingestion = options.ingestion();
    if (ingestion === undefined) return unavailable(exchange, notLoaded);
    const numeric = refuseNumericAppId(environment, document.value);
    if (numeric !== undefined) {
      note(environment, numeric, document, bytes);
      return refuse(exchange, numeric);
    }
    const context: PrepareContext = {
      environment,
      limitKeys: ingestion.limitKeys,
      nowMs: Date.now(),
      strictBulk: isStrict(exchange.query),
    };
    const prepared = prepare(kind, document, context);
    if (prepared.kind === 'refused') {
      if (prepared.errors === undefined) note(environment, prepared.reason, document, bytes);
      else noteElements(environment, prepared.errors, document);
      return refuse(exchange, prepared.reason, prepared.errors);
    }
    if (prepared.errors.length > 0) noteElements(environment, prepared.errors, document);
    submit(exchange, prepared, environment, ingestion);
  }

  function submit(
    exchange: Exchange,
    prepared: Ready,
    environment: LiveEnvironment,
    ingestion: Ingestion,
  ): void {
    const settle = exchange.guard((result: CommitResult) => answer(exchange, prepared, result, environment));
    ingestion.committerOf(environment.shard).submit(prepared.group, settle);
  }

  function answer(
    exchange: Exchange,
    prepared: Ready,
    result: CommitResult,
    environment: LiveEnvironment,
  ): void {
    switch (result.kind) {
      case 'committed':
        return acknowledge(exchange, prepared, result.letters, environment);
      case 'limited':
        return limited(exchange, prepared, result.limitIndex, result.waitMs);
      case 'failed':
        return exchange.fail(result.fault);
      default:
        return unavailable(exchange, rejectionOf(result));
    }
  }

  function acknowledge(
    exchange: Exchange,
    prepared: Ready,
    letters: string,
    environment: LiveEnvironment,
  ): void {
    const { errors, mendings } = prepared;
    let repeats = 0;
    for (let i = 0; i < letters.length; i++) if (letters[i] === 'r') repeats += 1;
    if (letters.length > repeats) accepted.inc(letters.length - repeats);
    if (repeats > 0) repeated.inc(repeats);
    if (mendings.size > 0) options.countMendings(environment.appId, mendings);
    if (errors.length === 0) return exchange.ok();
    for (const { code } of errors) recordsRejected.inc({ endpoint, code });
    exchange.reply(200, JSON.stringify({ accepted: letters.length, rejected: errors.length, errors }));
  }

  function limited(exchange: Exchange, prepared: Ready, limitIndex: number, waitMs: number): void {
    const { name, limit } = prepared.group.limits[limitIndex] as NamedLimit;
    requestsLimited.inc({ endpoint, limit: name });
    const waitSeconds = Math.max(1, Math.ceil(waitMs / 1000));
    // @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
    const headers: Headers = [
      ['Retry-After', String(waitSeconds)],
      ['RateLimit-Policy', `"${name}";q=${limit.max};w=${limit.windowMs / 1000}`],
      ['RateLimit', `"${name}";r=0;t=${waitSeconds}`],
    ];
    exchange.refuse(
      rejection('rate_limited', `The limit ${name} has no room for this request now.`),
      {},
      headers,
    );
  }

  function refuse(exchange: Exchange, reason: Rejection, errors?: readonly object[]): void {
    recordsRejected.inc({ endpoint, code: reason.code });
    exchange.refuse(reason, errors === undefined ? {} : { accepted: 0, rejected: errors.length, errors });
  }

  function note(environment: LiveEnvironment, reason: Rejection, document: Document, bytes: number): void {
    options.rejected.noteRequest(sourceOf(environment), reason, document.value, bytes);
  }

  function noteElements(
    environment: LiveEnvironment,
    errors: readonly ElementError[],
    document: Document,
  ): void {
    const elements = (document.value as Record<string, unknown[]>)[kind.bulk?.field ?? ''] ?? [];
    options.rejected.noteElements(sourceOf(environment), errors, elements);
  }

  function sourceOf({ appId }: LiveEnvironment): RejectedSource {
    return { endpoint, appId };
  }

  function unavailable(exchange: Exchange, reason: Rejection): void {
    requestsUnavailable.inc({ endpoint, code: reason.code });
    exchange.refuse(reason);
  }

  return handle;
}

/** Why a request is answered 503 whose commit came to this. */
export function rejectionOf(result: Extract<CommitResult, { kind: 'overloaded' | 'unknown' }>): Rejection {
  return result.kind === 'unknown'
    ? rejection('unknown', outcomes.unknown.meaning)
    : rejection('overloaded', `Nothing was stored: ${result.reason.replaceAll('_', ' ')}.`);
}

function isStrict(query: string): boolean {
  return query !== '' && new URLSearchParams(query).get('strict') === '1';
}
