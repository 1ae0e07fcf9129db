// POST /api/track, one event or many: body → document → environment → prepared group → commit → answer.

import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import type { Environments, LiveEnvironment } from '../accounts/environments.js';
import { bodies } from '../contract/limits.js';
import { outcomes, type Rejection, rejection } from '../contract/outcomes.js';
import { checkEnvelope } from '../ingest/check.js';
import type { CommitResult, Committer } from '../ingest/commit.js';
import { type Document, parseDocument } from '../ingest/document.js';
import type { LimitKeys } from '../ingest/limit-key.js';
import type { Mending } from '../ingest/mend.js';
import { type Prepared, prepareBulk, prepareEvent } from '../ingest/track.js';
import {
  recordsAccepted,
  recordsRejected,
  recordsRepeated,
  requestsLimited,
  requestsUnavailable,
} from '../metrics.js';
import { readJsonBody, tooLarge } from './body.js';
import { Exchange } from './exchange.js';

export type TrackOptions = {
  readonly environments: Environments;
  /** Undefined until Redis has told the deployment. */
  readonly ingestion: () => Ingestion | undefined;
  readonly countMendings: (appId: string, mendings: ReadonlyMap<Mending, number>) => void;
};

/** What is needed to commit, once the deployment is known. */
export type Ingestion = { readonly limitKeys: LimitKeys; readonly committerOf: (shard: number) => Committer };

export function createTrack(options: TrackOptions): (res: HttpResponse, req: HttpRequest) => void {
  const { environments } = options;
  const accepted = recordsAccepted.labels('track');
  const repeated = recordsRepeated.labels('track');

  function handle(res: HttpResponse, req: HttpRequest): void {
    const exchange = new Exchange(res, req);
    readJsonBody(exchange, bodies.bulkBytesMax, (body) => receive(exchange, body));
  }

  function receive(exchange: Exchange, body: Buffer): void {
    const document = parseDocument(body);
    if ('code' in document) return refuse(exchange, document);
    const appId = appIdOf(document.value);
    if (typeof appId !== 'string') return refuse(exchange, appId);
    const bulk = Object.hasOwn(document.value as object, 'events');
    if (!bulk && body.length > bodies.singleBytesMax)
      return refuse(exchange, tooLarge(bodies.singleBytesMax));

    const environment = environments.get(appId);
    if (environment !== undefined) return proceed(exchange, document, bulk, environment);
    void environments.find(appId).then((found) => {
      if (found === undefined) refuse(exchange, unknownAppId);
      else proceed(exchange, document, bulk, found);
    });
  }

  function proceed(
    exchange: Exchange,
    document: Document,
    bulk: boolean,
    environment: LiveEnvironment,
  ): void {
    const ingestion = options.ingestion();
    if (ingestion === undefined) return unavailable(exchange, 'overloaded', notLoaded);
    // Only lenient environments take a number as app_id.
    if (!environment.lenient && typeof (document.value as { app_id: unknown }).app_id !== 'string') {
      return refuse(exchange, rejection('invalid_type', 'app_id has the wrong type.', 'app_id'));
    }
    const context = { environment, limitKeys: ingestion.limitKeys, nowMs: Date.now() };
    const prepared = bulk
      ? prepareBulk(document, isStrict(exchange.query), context)
      : prepareEvent(document, context);
    if (prepared.kind === 'refused') return refuse(exchange, prepared.reason, prepared.errors);
    ingestion
      .committerOf(environment.shard)
      .submit(prepared.group, (result) => answer(exchange, prepared, result, environment));
  }

  function answer(
    exchange: Exchange,
    prepared: Extract<Prepared, { kind: 'ready' }>,
    result: CommitResult,
    environment: LiveEnvironment,
  ): void {
    switch (result.kind) {
      case 'committed':
        return acknowledge(exchange, prepared, result.letters, environment);
      case 'limited': {
        const limit = prepared.limitNames[result.limitIndex] ?? 'track';
        requestsLimited.inc({ endpoint: 'track', limit });
        const waitSeconds = Math.max(1, Math.ceil(result.waitMs / 1000));
        const reason = rejection('rate_limited', `The limit ${limit} has no room for this request now.`);
        return exchange.refuse(reason, {}, [['Retry-After', String(waitSeconds)]]);
      }
      case 'overloaded':
        return unavailable(
          exchange,
          'overloaded',
          `Nothing was stored: ${result.reason.replaceAll('_', ' ')}.`,
        );
      case 'unknown':
        return unavailable(exchange, 'unknown', outcomes.unknown.meaning);
    }
  }

  function acknowledge(
    exchange: Exchange,
    { errors, mendings, group }: Extract<Prepared, { kind: 'ready' }>,
    letters: string,
    environment: LiveEnvironment,
  ): void {
    let repeats = 0;
    for (let i = 0; i < letters.length; i++) if (letters[i] === 'r') repeats += 1;
    if (letters.length > repeats) accepted.inc(letters.length - repeats);
    if (repeats > 0) repeated.inc(repeats);
    if (mendings.size > 0) options.countMendings(environment.appId, mendings);
    if (errors.length === 0) return exchange.ok();
    for (const { code } of errors) recordsRejected.inc({ endpoint: 'track', code });
    exchange.reply(200, JSON.stringify({ accepted: group.records.length, rejected: errors.length, errors }));
  }

  function refuse(exchange: Exchange, reason: Rejection, errors?: readonly object[]): void {
    recordsRejected.inc({ endpoint: 'track', code: reason.code });
    exchange.refuse(reason, errors === undefined ? {} : { accepted: 0, rejected: errors.length, errors });
  }

  function unavailable(exchange: Exchange, code: 'overloaded' | 'unknown', message: string): void {
    requestsUnavailable.inc({ endpoint: 'track', code });
    exchange.refuse(rejection(code, message));
  }

  return handle;
}

const unknownAppId = rejection('unknown_app_id', outcomes.unknown_app_id.meaning, 'app_id');
const notLoaded = 'Nothing was stored: the state of the service is not loaded.';

/** The app_id of a request, as text, or what is wrong with it. */
function appIdOf(value: unknown): string | Rejection {
  const appId =
    typeof value === 'object' && value !== null ? (value as { app_id?: unknown }).app_id : undefined;
  if (typeof appId === 'number' && Number.isSafeInteger(appId) && appId >= 0) return String(appId);
  return checkEnvelope(value) ?? String(appId);
}

function isStrict(query: string): boolean {
  return query !== '' && new URLSearchParams(query).get('strict') === '1';
}
