// The admission of the endpoints that take records: body → document → environment → may the caller write to it? → the endpoint's own steps.
// Refusals are counted here in the same way for all endpoints, and listed for administrators if their environment is known.

import { outcomes, type Rejection, rejection } from '../../contract/outcomes.js';
import type { CommitResult } from '../../ingest/attempts.js';
import type { Committer } from '../../ingest/commit.js';
import { type IgnoredFields, textOfIgnored } from '../../ingest/ignored-fields.js';
import type { LimitKeys } from '../../ingest/limit-key.js';
import type { Mending } from '../../ingest/mend.js';
import type { ElementError } from '../../ingest/prepare.js';
import type { NamedLimit } from '../../ingest/request-limits.js';
import type { Submission } from '../../ingest/submission.js';
import type { EndpointName, RejectedRecords } from '../../insights/data-quality/rejected-records.js';
import type { TermCounts } from '../../insights/ledger/count.js';
import {
  recordsAccepted,
  recordsRejected,
  recordsRepeated,
  recordsSuppressed,
  requestsLimited,
  requestsUnavailable,
  usersUnjoined,
} from '../../metrics.js';
import type { Document } from '../../parsing/document.js';
import type { Suppressions } from '../../privacy/suppression/suppressions.js';
import type { Environments, LiveEnvironment } from '../../registry/environments.js';
import { refuseUnauthorized } from '../protocol/authorization.js';
import { bodyGuard } from '../protocol/body.js';
import { ignoredFieldsHeader } from '../protocol/cors.js';
import type { Exchange } from '../protocol/exchange.js';
import type { Guard } from '../protocol/guard.js';
import { type DocumentForm, parseBody } from '../protocol/parse-body.js';
import { appIdOf, findEnvironment, notLoaded, refuseNumericAppId } from './app-id.js';
import { rateLimitHeaders } from './rate-limit-headers.js';
import { needsWriteKey, noAllowance, withAllowance, writeKeyChallenge } from './write-access.js';

export type IngestOptions = {
  readonly environments: Environments;
  /** Undefined until the deployment was read from Redis. */
  readonly ingestion: () => Ingestion | undefined;
  readonly counts: Pick<TermCounts, 'addMendings' | 'add' | 'addRejected'>;
  /** Where refused records are listed, once their environment is known. */
  readonly rejected: Pick<RejectedRecords, 'noteRequest' | 'noteElements'>;
};

/** What a commit needs, once the deployment is known. */
export type Ingestion = {
  readonly limitKeys: LimitKeys;
  readonly suppressions: Suppressions;
  readonly committerOf: (shard: number) => Committer;
};

/** A request whose document names an app_id. */
export type Received = {
  readonly document: Document;
  /** The size of its body. */
  readonly bytes: number;
  /** When its body was complete, by this process's clock. */
  readonly receivedMs: number;
};

/** A request that has passed the admission. */
export type Admitted = Received & { readonly environment: LiveEnvironment; readonly ingestion: Ingestion };

export type Admission = {
  /** Reads a body, a large one in slices. `owned`: the body stays valid; otherwise it may be changed or freed once this returns. */
  receive(exchange: Exchange, body: Buffer, owned: boolean): void;
  /** Answers with the reason, and counts it. `fields` are added to the answer. */
  refuse(exchange: Exchange, reason: Rejection, fields?: object): void;
  refuseMissingWriteKey(exchange: Exchange, environment: LiveEnvironment): void;
  /** Like `refuse`, and also lists the request as rejected. */
  refuseAndNote(exchange: Exchange, reason: Rejection, admitted: Admitted): void;
  /** Refuses a request of one group whose commit has this result. */
  refuseUncommitted(
    exchange: Exchange,
    environment: LiveEnvironment,
    request: { readonly submission: Submission; readonly records: number },
    result: Exclude<CommitResult, { kind: 'committed' }>,
  ): void;
  refuseUnstored(exchange: Exchange, result: Unstored): void;
  /** Names in the answer the fields that the service ignores, and counts them. */
  noteIgnored(exchange: Exchange, admitted: Admitted, ignored: IgnoredFields): void;
  /** Lists elements of a request as rejected. */
  noteElements(admitted: Admitted, errors: readonly ElementError[], elements: readonly unknown[]): void;
  countRecords(appId: string, outcomes: RecordOutcomes): void;
  countLimited(appId: string, limit: string, requests: number, records: number): void;
};

export type AdmissionSteps = DocumentForm & {
  /**
   * Whether the caller may write to the environment; by default every caller may, and an import token lifts no limits. `value`: the
   * document's value.
   */
  readonly admits?: (
    environment: LiveEnvironment,
    authorization: string | undefined,
    value: unknown,
  ) => boolean;
  /** What names the environment, if it is not the field app_id of the document. */
  readonly credentialOf?: (exchange: Exchange, value: unknown) => string | Rejection;
  readonly proceed: (exchange: Exchange, admitted: Admitted) => void;
  /** Why a request is refused, regardless of its environment. */
  readonly refusalOf?: (received: Received) => Rejection | undefined;
};

/** The header that says how many records of a request were already stored under the same keys. */
export const repeatsHeader = 'Sluice-Repeats';

/** What the admission refuses: bad bodies, and missing or unknown environments. */
export const admissionGuard: Guard = {
  parameters: bodyGuard.parameters ?? [],
  refuses: [...bodyGuard.refuses, 'missing_field', 'invalid_type', 'unknown_app_id', 'overloaded', 'unknown'],
};

export function createAdmission(
  endpoint: EndpointName,
  { environments, ingestion, counts, rejected }: IngestOptions,
  steps: AdmissionSteps,
): Admission {
  const accepted = recordsAccepted.labels(endpoint);
  const repeats = recordsRepeated.labels(endpoint);

  function receive(exchange: Exchange, body: Buffer, owned: boolean): void {
    const receivedMs = Date.now();
    const bytes = body.length;
    parseBody(exchange, body, owned, steps, (document) =>
      receiveDocument(exchange, document, bytes, receivedMs),
    );
  }

  function receiveDocument(
    exchange: Exchange,
    document: Document | Rejection,
    bytes: number,
    receivedMs: number,
  ): void {
    if ('code' in document) return refuse(exchange, document);
    const { credentialOf } = steps;
    const appId =
      credentialOf === undefined ? appIdOf(document.value) : credentialOf(exchange, document.value);
    if (typeof appId !== 'string') return refuse(exchange, appId);
    const received = { document, bytes, receivedMs };
    const environment = environments.get(appId);
    if (environment !== undefined) return admit(exchange, received, environment);
    const reason = steps.refusalOf?.(received);
    if (reason !== undefined) return refuse(exchange, reason);
    const work = findEnvironment(environments, appId).then((found) => {
      if ('code' in found) refuse(exchange, found);
      else admit(exchange, received, found);
    });
    exchange.attend(work);
  }

  function admit(exchange: Exchange, received: Received, found: LiveEnvironment): void {
    const { admits, refusalOf } = steps;
    // Requests without a valid key are not listed, so that they cannot displace those of real producers.
    if (admits?.(found, exchange.framing.authorization, received.document.value) === false)
      return refuseMissingWriteKey(exchange, found);
    const token = admits === undefined ? undefined : exchange.framing.importToken;
    const environment = withAllowance(found, token, received.receivedMs);
    if (environment === undefined) return refuse(exchange, noAllowance);
    const reason = refusalOf?.(received);
    if (reason !== undefined) {
      note(environment, reason, received);
      return refuse(exchange, reason);
    }
    const known = ingestion();
    if (known === undefined) return refuse(exchange, notLoaded);
    const { document, bytes, receivedMs } = received;
    // Field by field, since a spread takes a microsecond.
    const admitted = { document, bytes, receivedMs, environment, ingestion: known };
    const numeric =
      steps.credentialOf === undefined ? refuseNumericAppId(environment, received.document.value) : undefined;
    if (numeric !== undefined) return refuseAndNote(exchange, numeric, admitted);
    steps.proceed(exchange, admitted);
  }

  function refuse(exchange: Exchange, reason: Rejection, fields: object = {}): void {
    const { code } = reason;
    if (outcomes[code].status === 503) requestsUnavailable.inc({ endpoint, code });
    else recordsRejected.inc({ endpoint, code });
    if (outcomes[code].status === 401) refuseUnauthorized(exchange, reason, writeKeyChallenge);
    else exchange.refuse(reason, fields);
  }

  function refuseMissingWriteKey(exchange: Exchange, { appId }: LiveEnvironment): void {
    recordsRejected.inc({ endpoint, code: needsWriteKey.code });
    counts.add(appId, 'unauthorized', 1);
    counts.addRejected(appId, [needsWriteKey]);
    refuseUnauthorized(exchange, needsWriteKey, writeKeyChallenge);
  }

  function refuseAndNote(exchange: Exchange, reason: Rejection, admitted: Admitted): void {
    note(admitted.environment, reason, admitted);
    refuse(exchange, reason);
  }

  function note({ appId }: LiveEnvironment, reason: Rejection, { document, bytes }: Received): void {
    rejected.noteRequest({ endpoint, appId }, reason, document.value, bytes);
    counts.addRejected(appId, [reason]);
  }

  function noteElements(
    { environment }: Admitted,
    errors: readonly ElementError[],
    elements: readonly unknown[],
  ): void {
    rejected.noteElements({ endpoint, appId: environment.appId }, errors, elements);
    counts.addRejected(environment.appId, errors);
  }

  function noteIgnored(exchange: Exchange, { environment }: Admitted, ignored: IgnoredFields): void {
    if (ignored.count === 0) return;
    exchange.addHeader(ignoredFieldsHeader, textOfIgnored(ignored));
    counts.add(environment.appId, 'ignored_fields', ignored.count);
  }

  function refuseUnstored(exchange: Exchange, result: Unstored): void {
    if (result.kind === 'failed') return exchange.fail(result.fault);
    const { kind } = result;
    const message =
      kind === 'unknown' ? undefined : `Nothing was stored: ${result.reason.replaceAll('_', ' ')}.`;
    refuse(exchange, rejection(kind, message));
  }

  const refuseUncommitted: Admission['refuseUncommitted'] = (exchange, { appId }, request, result) => {
    if (result.kind !== 'limited') return refuseUnstored(exchange, result);
    const { limitIndex, waitMs } = result;
    const named = request.submission.groups[0]?.limits[limitIndex] as NamedLimit;
    countLimited(appId, named.name, 1, request.records);
    const { max, windowMs } = named.limit;
    const allowed = `The limit ${named.name} (${max} in ${windowMs / 1000} s) has no room for this request now`;
    const reason = rejection('rate_limited', `${allowed}; an administrator may change it.`);
    exchange.refuse(reason, {}, rateLimitHeaders(named, waitMs));
  };

  function countRecords(appId: string, outcomes: RecordOutcomes): void {
    const { stored, repeated, suppressed, unjoined, errors, mendings } = outcomes;
    if (stored > 0) accepted.inc(stored);
    if (repeated > 0) repeats.inc(repeated);
    if (suppressed > 0) recordsSuppressed.inc({ endpoint }, suppressed);
    if (unjoined > 0) usersUnjoined.inc(unjoined);
    for (const { code } of errors) recordsRejected.inc({ endpoint, code });
    if (mendings.size > 0) counts.addMendings(appId, mendings);
  }

  function countLimited(appId: string, limit: string, requests: number, records: number): void {
    requestsLimited.inc({ endpoint, limit }, requests);
    counts.add(appId, 'limited', records);
  }

  return {
    receive,
    refuse,
    refuseMissingWriteKey,
    refuseAndNote,
    refuseUncommitted,
    refuseUnstored,
    noteIgnored,
    noteElements,
    countRecords,
    countLimited,
  };
}

type Unstored = Extract<CommitResult, { kind: 'failed' | 'overloaded' | 'unknown' }>;

/** Where an endpoint takes messages, a record is a message. */
type RecordOutcomes = {
  readonly stored: number;
  readonly repeated: number;
  /** Records of suppressed users. They are answered as if they were stored. */
  readonly suppressed: number;
  /** Those among the suppressed that are identifications whose anonymous user could not be joined to the suppressed one. */
  readonly unjoined: number;
  readonly errors: readonly Pick<Rejection, 'code'>[];
  readonly mendings: ReadonlyMap<Mending, number>;
};
