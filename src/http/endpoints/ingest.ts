// The ingestion endpoints, for one record or many: body → (short path of plain events | admission → prepared group) → commit → answer.

import { bodies } from '../../contract/limits.js';
import type { Rejection } from '../../contract/outcomes.js';
import type { CommitResult } from '../../ingest/attempts.js';
import { eventKind } from '../../ingest/event.js';
import { identifyKind } from '../../ingest/identify.js';
import { ignoredOf } from '../../ingest/ignored-fields.js';
import { forgetPlainEvents } from '../../ingest/plain-events.js';
import {
  isBulk,
  type PrepareContext,
  type Prepared,
  prepare,
  preparePlain,
  type Ready,
} from '../../ingest/prepare.js';
import type { Checked, RecordKind } from '../../ingest/record-kind.js';
import { userPropertiesKind } from '../../ingest/user-properties.js';
import type { Steps } from '../../parsing/steps.js';
import type { LiveEnvironment } from '../../registry/environments.js';
import { operation } from '../openapi/document.js';
import { ingestDocs } from '../openapi/ingest.js';
import { readJsonBody } from '../protocol/body.js';
import { tooLarge } from '../protocol/body-room.js';
import type { Exchange } from '../protocol/exchange.js';
import type { Handler, Route } from '../protocol/server.js';
import { withResult } from '../protocol/slices.js';
import {
  type Admitted,
  admissionGuard,
  createAdmission,
  type IngestOptions,
  type Received,
  repeatsHeader,
} from './admission.js';
import { type LargeBodyOptions, withinAllowance } from './byte-allowance.js';
import { createWriteAccess, withAllowance, writeKeyGuard } from './write-access.js';

export function ingestRoutes(options: IngestOptions & LargeBodyOptions): Route[] {
  const doc = (kind: keyof typeof ingestDocs) => operation(ingestDocs[kind], admissionGuard, writeKeyGuard);
  return [
    { method: 'post', path: '/api/track', handle: ingest(eventKind, options), doc: doc('track') },
    {
      method: 'post',
      path: '/api/add_user_properties',
      handle: ingest(userPropertiesKind, options),
      doc: doc('add_user_properties'),
    },
    { method: 'post', path: '/api/v1/identify', handle: ingest(identifyKind, options), doc: doc('identify') },
  ];
}

function ingest<T extends Checked>(kind: RecordKind<T>, options: IngestOptions & LargeBodyOptions): Handler {
  const { environments } = options;
  const bytesMax = kind.bulk === undefined ? bodies.singleBytesMax : bodies.bulkBytesMax;
  const mayWrite = createWriteAccess(environments);
  const admission = createAdmission(kind.name, options, {
    list: kind.bulk,
    admits: mayWrite,
    proceed,
    refusalOf,
  });

  const take = withinAllowance(kind.name, options.largeBodies, (exchange, body, owned) => {
    if (!receivePlain(exchange, body, owned)) admission.receive(exchange, body, owned);
  });

  function handle(exchange: Exchange): void {
    readJsonBody(exchange, bytesMax, take);
  }

  /** The short path for plain requests. Returns false, having done nothing, if the request is not plain. */
  function receivePlain(exchange: Exchange, body: Buffer, owned: boolean): boolean {
    const ingestion = options.ingestion();
    if (ingestion === undefined) return false;
    const nowMs = Date.now();
    const events = kind.readPlain?.(body, owned, nowMs);
    if (events === undefined) return false;
    const found = environments.get(events.appId);
    if (found === undefined) return false;
    if (!mayWrite(found, exchange.framing.authorization)) {
      admission.refuseMissingWriteKey(exchange, found);
      return true;
    }
    const environment = withAllowance(found, exchange.framing.importToken, nowMs);
    if (environment === undefined) return false;
    const { limitKeys, suppressions } = ingestion;
    const context = { environment, limitKeys, suppressions, nowMs, strictBulk: false };
    const prepared = preparePlain(kind, events, context);
    if (prepared === undefined) return false;
    ingestion.committerOf(environment.shard).submit(prepared.submission, ([result]) => {
      exchange.run(answer, exchange, prepared, result as CommitResult, environment);
      forgetPlainEvents(events);
    });
    return true;
  }

  function refusalOf({ document, bytes }: Received): Rejection | undefined {
    const tooLargeForOne = bytes > bodies.singleBytesMax && !isBulk(kind, document);
    return tooLargeForOne ? tooLarge(bodies.singleBytesMax) : undefined;
  }

  function proceed(exchange: Exchange, admitted: Admitted): void {
    const { document, environment, ingestion } = admitted;
    const context: PrepareContext = {
      environment,
      limitKeys: ingestion.limitKeys,
      suppressions: ingestion.suppressions,
      nowMs: admitted.receivedMs,
      strictBulk: isSet(exchange.query, 'strict'),
    };
    const preparing = function* (): Steps<Prepared> {
      admission.noteIgnored(exchange, admitted, yield* ignoredOf(kind, document));
      return yield* prepare(kind, document, context);
    };
    withResult(exchange, document.isLarge, preparing(), (prepared) => conclude(exchange, admitted, prepared));
  }

  function conclude(exchange: Exchange, admitted: Admitted, prepared: Prepared): void {
    const { environment, ingestion } = admitted;
    if (prepared.kind === 'refused') {
      const { reason, errors } = prepared;
      // An import sends an empty list to check whether its records would be accepted, so no record was refused.
      const isEmpty = reason.code === 'empty' && reason.field === kind.bulk?.field;
      if (isEmpty && isSet(exchange.query, 'check')) return exchange.refuse(reason);
      if (errors === undefined) return admission.refuseAndNote(exchange, reason, admitted);
      admission.noteElements(admitted, errors, elementsOf(admitted));
      return admission.refuse(exchange, reason, { accepted: 0, rejected: errors.length, errors });
    }
    if (prepared.errors.length > 0) admission.noteElements(admitted, prepared.errors, elementsOf(admitted));
    ingestion
      .committerOf(environment.shard)
      .submit(prepared.submission, ([result]) =>
        exchange.run(answer, exchange, prepared, result as CommitResult, environment),
      );
  }

  function elementsOf({ document }: Admitted): readonly unknown[] {
    return (document.value as Record<string, unknown[]>)[kind.bulk?.field ?? ''] ?? [];
  }

  function answer(
    exchange: Exchange,
    prepared: Ready,
    result: CommitResult,
    environment: LiveEnvironment,
  ): void {
    if (result.kind === 'committed') acknowledge(exchange, prepared, result, environment);
    else admission.refuseUncommitted(exchange, environment, prepared, result);
  }

  function acknowledge(
    exchange: Exchange,
    prepared: Ready,
    { letters }: Extract<CommitResult, { kind: 'committed' }>,
    environment: LiveEnvironment,
  ): void {
    const { errors, mendings, records } = prepared;
    let [stored, repeated, unjoined] = [0, 0, 0];
    for (let i = 0; i < letters.length; i++) {
      if (letters[i] === 's') stored += 1;
      else if (letters[i] === 'r') repeated += 1;
      else if (letters[i] === 'u') unjoined += 1;
    }
    const suppressed = letters.length - stored - repeated;
    const outcomes = { stored, repeated, suppressed, unjoined, errors, mendings };
    admission.countRecords(environment.appId, outcomes);
    if (repeated > 0) exchange.addHeader(repeatsHeader, String(repeated));
    if (errors.length === 0) return exchange.ok();
    exchange.reply(200, JSON.stringify({ accepted: records, rejected: errors.length, errors }));
  }

  return handle;
}

function isSet(query: string, name: 'strict' | 'check'): boolean {
  return query !== '' && ['1', 'true'].includes(new URLSearchParams(query).get(name) ?? '');
}
