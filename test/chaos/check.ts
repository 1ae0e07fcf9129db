// Finds broken promises at the end of a round, from its histories and from what is stored. Does no I/O.

import type { TestAccount } from '../harness/accounts.js';
import {
  findViolations,
  type Loss,
  type Sending,
  type StoredEvent,
  sendingsOf,
} from '../harness/exactly-once.js';
import type { Invocation, Settlement } from '../harness/load.js';
import type { Broken } from './broken.js';
import { type Call, findCallFaults } from './callbacks.js';
import type { Submission } from './deletions.js';
import type { AskedExport } from './exported-users.js';
import { findExportFaults } from './exports.js';
import { createFates } from './fates.js';
import type { Emptied } from './fault.js';
import { findExceeded } from './limit-windows.js';
import type { Sight } from './rows.js';
import { findStatusFaults } from './statuses.js';
import { isAbout, mergedMark, type SuppressedUser } from './suppressed-users.js';

/** One environment: what was sent to it, and what is stored in it. */
export type Environment = {
  readonly appId: string;
  readonly history: readonly (Invocation & Partial<Settlement>)[];
  readonly rows: readonly StoredEvent[];
  /** What clients sent about users after the answer that these are suppressed. */
  readonly keptOut?: readonly (Invocation & Partial<Settlement>)[];
};

export type Evidence = {
  readonly account: Pick<TestAccount, 'appIds'>;
  readonly environments: readonly Environment[];
  readonly submissions: readonly Submission[];
  /** Statuses of failed requests for a token, whose key was always valid; none by default. */
  readonly tokenAnswers?: readonly number[];
  readonly exports?: readonly AskedExport[];
  /** The users of the account who were suppressed; none by default. */
  readonly suppressed?: readonly SuppressedUser[];
  /** The callbacks about complete deletions, and the secret that signs them. */
  readonly callbacks?: { readonly calls: readonly Call[]; readonly secret: string };
  /** What was seen of deleted users during the round (sights.ts); nothing by default. */
  readonly sights?: readonly Sight[];
  readonly emptied: readonly Emptied[];
  /** What ClickHouse lost when it was set back; nothing by default. */
  readonly setBack?: readonly Loss[];
  /** For how long the clock that stamps records stood still, after Redis's clock was set back; 0 by default. */
  readonly clockStoodMs?: number;
  /** Whether Redis's clock was moved; false by default. */
  readonly clockMoved?: boolean;
  /** When the index of keys was lost; never by default. */
  readonly indexLostMs?: readonly number[];
  /** Whether an API process was killed, paused or restarted, so that its callers may get no answer. */
  readonly apiDisturbed: boolean;
};

export type Counts = {
  readonly acknowledged: number;
  readonly deletions: number;
  /** Exports that were read to their end, acknowledged records about suppressed users, and callbacks about deletions. */
  readonly exports: number;
  readonly keptOut: number;
  readonly calls: number;
  /** Records whose outcome is unknown, and how many of these are stored. */
  readonly unknown: number;
  readonly unknownStored: number;
};

export function findBroken(evidence: Evidence): Broken[] {
  const { account, environments, emptied, clockStoodMs, clockMoved = false, apiDisturbed } = evidence;
  const submissions = evidence.submissions.map((submission) =>
    mayBeForgotten(submission, emptied) ? { ...submission, outcome: 'perhaps' as const } : submission,
  );
  const losses = [...emptied, ...(evidence.setBack ?? [])];
  const lost = new Set(losses.flatMap(({ markers }) => [...markers]));
  const emptiedMs = emptied.map(({ fromMs, toMs }) => [fromMs, toMs] as const);
  const isShutOut = (sending: Sending) =>
    (evidence.suppressed ?? []).some(
      (user) => isAbout(sending.event, user) && sending.settledMs > user.fromMs,
    );
  const ofRecords = environments.flatMap(({ appId, history, rows: stored, keptOut = [] }) => {
    const shut = new Set(keptOut.flatMap(({ events }) => events.map(({ properties }) => properties.marker)));
    const isShut = ({ properties }: StoredEvent) => shut.has(properties.marker ?? '');
    const rows = stored.filter((row) => !isShut(row));
    const reached = account.appIds.includes(appId) ? submissions : [];
    const fatesBy = (some: readonly Submission[]) =>
      createFates(history, some, lost, emptied.length > 0, evidence.indexLostMs);
    const fateOf = fatesBy(reached.map(perhapsUnlessComplete));
    const seen = (evidence.sights ?? []).filter((sight) => sight.appId === appId);
    return [
      ...findViolations(history, rows, {
        emptiedMs,
        losses,
        fateOf,
        ...(account.appIds.includes(appId) && { isShutOut }),
      }).map(({ kind, marker, detail }) => ({
        kind,
        what: marker,
        detail,
      })),
      ...seen.flatMap(({ kind, rows, requestIds }) => {
        const isGone = ({ requestId }: Submission) => requestIds.has(requestId);
        const gone = reached.map((each) => (isGone(each) ? each : { ...each, outcome: 'perhaps' as const }));
        return findViolations(history, rows, { emptiedMs, losses, fateOf: fatesBy(gone) })
          .filter((violation) => violation.kind === 'resurrected')
          .map(({ marker, detail }) => ({ kind, what: marker, detail }));
      }),
      ...findExceeded(history, rows, emptied.length > 0, clockStoodMs),
      ...findStoredThoughSuppressed(stored.filter(isShut), lost),
      ...findWrongAnswers([...history, ...keptOut], apiDisturbed, emptied.length > 0),
    ];
  });
  const refusedTokens = (evidence.tokenAnswers ?? [])
    .filter((status) => status !== 503)
    .map((status) => ({ kind: 'wrongly refused', what: 'a token', detail: `status ${status}` }));
  const { exports = [], callbacks } = evidence;
  return [
    ...ofRecords,
    ...refusedTokens,
    ...findStatusFaults(submissions, emptied.length > 0 || clockMoved),
    ...findExportFaults(exports, lost, emptiedMs, clockMoved),
    ...(callbacks === undefined ? [] : findCallFaults(submissions, callbacks.calls, callbacks.secret)),
  ];
}

/** Finds rows about suppressed users. A store that lost records may no longer know with whom a suppressed user was merged. */
function findStoredThoughSuppressed(rows: readonly StoredEvent[], lost: ReadonlySet<string>): Broken[] {
  return rows.flatMap(({ properties: { marker = '' } }) =>
    lost.size > 0 && marker.includes(`-${mergedMark}-`)
      ? []
      : [{ kind: 'stored though suppressed', what: marker, detail: '' }],
  );
}

/**
 * Whether an accepted request may be forgotten or stay pending for ever, because Redis was emptied before ClickHouse had the request with
 * its targets. But once a caller has seen it complete, it must stay complete whatever is lost later.
 */
function mayBeForgotten(submission: Submission, emptied: readonly Emptied[]): boolean {
  const { outcome, requestId, invokedMs, polls } = submission;
  // Only the first loss counts: a request that was restored once is kept.
  const loss = emptied.find(({ toMs }) => invokedMs < toMs);
  if (outcome !== 'accepted' || loss === undefined) return false;
  const wasSeenComplete = polls.some(
    ({ status, settledMs }) => status === 'complete' && settledMs < loss.fromMs,
  );
  return !wasSeenComplete && !loss.keptDeletions.has(requestId);
}

/** A request that never became complete may have deleted some records and not others. (statuses.ts reports it.) */
function perhapsUnlessComplete(submission: Submission): Submission {
  const complete = submission.polls.some(({ status }) => status === 'complete');
  return submission.outcome === 'accepted' && !complete ? { ...submission, outcome: 'perhaps' } : submission;
}

function findWrongAnswers(
  history: readonly (Invocation & Partial<Settlement>)[],
  apiDisturbed: boolean,
  emptied: boolean,
): Broken[] {
  return history.flatMap((request) => {
    const { outcome, status, code, message = '', events } = request;
    const what = `request ${request.request}`;
    const detail = `${status} ${code} after ${Math.round((request.settledMs ?? Number.NaN) - request.invokedMs)} ms`;
    if (outcome === 'unexpected') return [{ kind: 'unexpected answer', what, detail }];
    if (outcome === 'unanswered' && !apiDisturbed)
      return [{ kind: 'no answer', what, detail: `${detail}: ${message}` }];
    const valid = !events.some(({ identity, user_id }) => identity === 'both' && user_id !== undefined);
    const may = code === 'rate_limited' || (emptied && code === 'unknown_app_id');
    if (outcome === 'refused' && valid && !may) return [{ kind: 'wrongly refused', what, detail }];
    return [];
  });
}

export function countEvidence({ environments, submissions, exports = [], callbacks }: Evidence): Counts {
  const counts = { acknowledged: 0, keptOut: 0, unknown: 0, unknownStored: 0 };
  for (const { history, rows, keptOut = [] } of environments) {
    counts.keptOut += keptOut.flatMap(sendingsOf).filter(({ verdict }) => verdict === 'stored').length;
    const stored = new Set(rows.map(({ properties }) => properties.marker));
    for (const { verdict, event } of history.flatMap(sendingsOf) as Sending[]) {
      if (verdict === 'stored') counts.acknowledged += 1;
      if (verdict !== 'perhaps') continue;
      counts.unknown += 1;
      if (stored.has(event.properties.marker)) counts.unknownStored += 1;
    }
  }
  return {
    ...counts,
    deletions: submissions.filter(({ outcome }) => outcome === 'accepted').length,
    exports: exports.filter(({ records }) => records !== undefined).length,
    calls: callbacks?.calls.length ?? 0,
  };
}
