// Compares the answers that producers got with the rows that ClickHouse holds. It does no I/O.
//
//   acknowledged                exactly one row, with the fields that were sent
//   refused, overloaded         no row
//   unknown, no answer          no row or one
//   equal idempotency keys      one row: the first event, or one of the events under way at once
//   never sent                  no row
//   deleted                     no row; records that no deletion reached follow the rules above

import type { SentEvent } from './endpoints.js';
import { type Endpoint, keyAt } from './endpoints.js';
import type { Invocation, Settlement } from './load.js';

/** A stored record, an event unless `kind` says otherwise; times in ms since 1970. */
export type StoredEvent = {
  readonly kind?: 'user_properties' | 'identify';
  readonly event_id: string;
  readonly event: string;
  readonly user_id: string | null;
  readonly identity: string;
  readonly session_id: string;
  readonly time_ms: string;
  readonly received_ms: string;
  readonly properties: Readonly<Record<string, string>>;
};

/** The statement that reads an environment's rows for the check. */
export function storedEventsQuery(appId: string): string {
  return `SELECT toString(event_id) AS event_id, event, if(user_id IS NULL, NULL, toString(user_id)) AS user_id,
    identity, session_id, toString(toUnixTimestamp64Milli(time)) AS time_ms,
    toString(toUnixTimestamp64Milli(received_at)) AS received_ms, properties
    FROM events WHERE app_id = '${appId}'`;
}

export type Violation = {
  readonly kind:
    | 'lost'
    | 'doubled'
    | 'not absent'
    | 'changed'
    | 'not the first'
    | 'never sent'
    | 'resurrected'
    | 'over-deleted';
  readonly marker: string;
  readonly detail: string;
};

export type Sending = {
  readonly endpoint: Endpoint;
  readonly event: SentEvent;
  readonly request: number;
  readonly index: number;
  readonly invokedMs: number;
  readonly settledMs: number;
  readonly verdict: 'stored' | 'absent' | 'perhaps';
};

/**
 * What deletions do to a record: it goes, it may go, or it stays. `near` means that it stays although some deletion named
 * its user.
 */
export type Fate = 'goes' | 'free' | 'stays' | 'near';

/** What else decides which rows there must be. */
export type Circumstances = {
  /** The fate of a record; by default it stays. */
  readonly fateOf?: (sendings: readonly Sending[]) => Fate;
  /** Times at which Redis lost its keys, and perhaps records that only it held. It accepts a repeat of such a record as new. */
  readonly emptiedMs?: readonly (readonly [fromMs: number, toMs: number])[];
  /** By default no store lost anything. */
  readonly losses?: readonly Loss[];
  /** Whether a sending may have been acknowledged and not stored because its user is suppressed. By default nobody is. */
  readonly isShutOut?: (sending: Sending) => boolean;
};

/** Records that a store lost with their keys. A record that is acknowledged again after `toMs` must be stored. */
export type Loss = {
  readonly fromMs: number;
  readonly toMs: number;
  readonly markers: ReadonlySet<string>;
};

export function findViolations(
  history: readonly (Invocation & Partial<Settlement>)[],
  rows: readonly StoredEvent[],
  { fateOf = () => 'stays', emptiedMs = [], losses = [], isShutOut = () => false }: Circumstances = {},
): Violation[] {
  const violations: Violation[] = [];
  const report = (kind: Violation['kind'], marker: string, detail: string) =>
    violations.push({ kind, marker, detail });

  const sendings = history.flatMap(sendingsOf);
  const byMarker = group(sendings, ({ event }) => event.properties.marker);
  const byKey = group(sendings, ({ endpoint, event }) => keyAt(endpoint, event));
  const mayBeDeleted = (marker: string) => fates.get(marker) === 'goes' || fates.get(marker) === 'free';
  /** Whether a loss excuses that a record is missing. `sent` has its sendings, or those of all records with its key. */
  const mayBeLost = (marker: string, sent: readonly Sending[]) =>
    losses.some(
      ({ markers, toMs }) =>
        markers.has(marker) &&
        !sent.some(
          (sending) => sending.verdict === 'stored' && sending.invokedMs > toMs && !isShutOut(sending),
        ),
    );
  const missing = (marker: string) => (fates.get(marker) === 'near' ? 'over-deleted' : 'lost');
  /** How often Redis may have accepted a record as new: once, and once more for each time that it was emptied meanwhile. */
  const timesNew = (sent: readonly Sending[]) =>
    1 + emptiedMs.filter(([fromMs, toMs]) => spans(sent, fromMs, toMs)).length;
  /** How many rows a record may have. With a key only one: ClickHouse knows the key for ever once the record is stored. */
  const rowsMax = (sent: readonly Sending[]) =>
    sent.every(({ endpoint, event }) => keyAt(endpoint, event) !== undefined) ? 1 : timesNew(sent);
  const fates = new Map(
    [...byMarker].map(([marker, sent]) => {
      const fate = fateOf(sent);
      // A record that was deleted and then forgotten may have been accepted again.
      return [marker, fate === 'goes' && timesNew(sent) > 1 ? 'free' : fate];
    }),
  );
  const rowsByMarker = group(rows, ({ properties }) => properties.marker ?? '');
  const ids = new Map<string, string>();

  for (const [marker, found] of rowsByMarker) {
    const sent = byMarker.get(marker);
    if (sent === undefined) {
      report('never sent', marker, JSON.stringify(found[0]));
      continue;
    }
    if (found.length > rowsMax(sent)) {
      const received = found.map(({ received_ms }) => received_ms).join(' and ');
      report('doubled', marker, `${found.length} rows, received at ${received}; ${describe(sent)}`);
    }
    if (fates.get(marker) === 'goes') report('resurrected', marker, describe(sent));
    if (sent.every(({ verdict }) => verdict === 'absent')) report('not absent', marker, describe(sent));
    for (const row of found) {
      const difference = differenceOf(sent[0] as Sending, row);
      if (difference !== '') report('changed', marker, difference);
      const other = ids.get(row.event_id);
      const both = [...sent, ...(byMarker.get(other ?? '') ?? [])];
      if (other !== undefined && other !== marker && rowsMax(both) === 1) {
        report('doubled', marker, `two rows have the id ${row.event_id}`);
      }
      if (row.kind === undefined) ids.set(row.event_id, marker);
    }
  }
  for (const [marker, sent] of byMarker) {
    const { endpoint, event } = sent[0] as Sending;
    if (keyAt(endpoint, event) !== undefined || rowsByMarker.has(marker)) continue;
    if (mayBeDeleted(marker) || mayBeLost(marker, sent)) continue;
    if (sent.some(({ verdict }) => verdict === 'stored')) report(missing(marker), marker, describe(sent));
  }
  for (const [key, sent] of byKey) {
    const markers = [...new Set(sent.map(({ event }) => event.properties.marker))];
    const stored = markers.filter((marker) => rowsByMarker.has(marker));
    const first = markers.filter((marker) => couldBeFirst(marker, sent));
    const acknowledged = sent.some(({ verdict }) => verdict === 'stored');
    if (stored.length > rowsMax(sent)) report('doubled', stored.join(), `rows of one key, ${describe(sent)}`);
    // After a loss the next record with the key becomes its first, and a deletion may have removed that one.
    const isNext = (marker: string) =>
      losses.some(
        ({ fromMs, markers: lost }) =>
          first.some((each) => lost.has(each)) &&
          sent.some(({ event, settledMs }) => event.properties.marker === marker && settledMs > fromMs),
      );
    const isExcused = markers.some(
      (marker) =>
        mayBeLost(marker, sent) || (mayBeDeleted(marker) && (first.includes(marker) || isNext(marker))),
    );
    if (stored.length === 0 && acknowledged && !isExcused) {
      const fatesText = markers.map((marker) => `${marker} ${fates.get(marker)}`).join(', ');
      const kind = first.map(missing).includes('over-deleted') ? 'over-deleted' : 'lost';
      report(kind, key, `${describe(sent)}; ${fatesText}`);
    }
    // When a record is gone, another one may have its key.
    const isFree = losses.some(
      ({ fromMs, toMs, markers }) =>
        spans(sent, fromMs, toMs) && first.some((marker) => markers.has(marker) || mayBeDeleted(marker)),
    );
    if (timesNew(sent) > 1 || isFree) continue;
    for (const marker of stored) if (!first.includes(marker)) report('not the first', marker, describe(sent));
  }
  return violations;
}

/** Whether some sendings began before the end of a period, and some ended after its beginning. */
function spans(sent: readonly Sending[], fromMs: number, toMs: number): boolean {
  return sent.some(({ invokedMs }) => invokedMs < toMs) && sent.some(({ settledMs }) => settledMs > fromMs);
}

export function sendingsOf(request: Invocation & Partial<Settlement>): Sending[] {
  const { endpoint = request.events.length > 1 ? 'bulk' : 'track' } = request;
  return request.events.map((event, index) => ({
    endpoint,
    event,
    request: request.request,
    index,
    invokedMs: request.invokedMs,
    settledMs: request.settledMs ?? Number.POSITIVE_INFINITY,
    verdict: verdictOf(request, index),
  }));
}

function verdictOf({ outcome, refusedIndexes }: Partial<Settlement>, index: number): Sending['verdict'] {
  switch (outcome) {
    case 'acknowledged':
      return refusedIndexes?.includes(index) ? 'absent' : 'stored';
    case 'refused':
    case 'overloaded':
      return 'absent';
    default:
      return 'perhaps';
  }
}

/** Whether the marker may have been sent before every other one with its key. */
function couldBeFirst(marker: string, sent: readonly Sending[]): boolean {
  const others = sent.filter(
    ({ event, verdict }) => event.properties.marker !== marker && verdict === 'stored',
  );
  return sent.some(
    (own) =>
      own.event.properties.marker === marker &&
      own.verdict !== 'absent' &&
      !others.some((other) => isBefore(other, own)),
  );
}

function isBefore(a: Sending, b: Sending): boolean {
  return a.request === b.request ? a.index < b.index : a.settledMs < b.invokedMs;
}

/** In words, which fields of a row are not what was sent; empty when all are. */
function differenceOf({ endpoint, event }: Sending, row: StoredEvent): string {
  const properties = Object.fromEntries(
    Object.entries(event.properties).map(([key, value]) => [
      key,
      Array.isArray(value) ? value.join('||') : String(value),
    ]),
  );
  const user = { user_id: event.user_id ?? null, identity: event.identity ?? '', kind: event.kind };
  const eventFields =
    event.kind === undefined
      ? {
          event: event.event,
          session_id: event.session_id ?? '',
          time_ms: timeOf(endpoint, event, row),
        }
      : {};
  const wanted = { ...user, ...eventFields, properties: sorted(properties) };
  const stored = { ...row, properties: sorted(row.properties) };
  return (Object.keys(wanted) as (keyof typeof stored)[])
    .filter((field) => JSON.stringify(wanted[field as keyof typeof wanted]) !== JSON.stringify(stored[field]))
    .map(
      (field) =>
        `${field}: sent ${JSON.stringify(wanted[field as keyof typeof wanted])}, stored ${JSON.stringify(stored[field])}`,
    )
    .join('; ');
}

/** How far a message's time may be off: the API corrects it by its own clock, which may be wrong in a test. */
const clockOffsetMsMax = 3_700_000;

/** The time that a row must have: when its event happened, or when it was accepted. */
function timeOf(endpoint: Endpoint, { timestamp }: SentEvent, row: StoredEvent): string {
  if (timestamp === undefined) return row.received_ms;
  const sentMs = Date.parse(timestamp);
  const isNear = Math.abs(Number(row.time_ms) - sentMs) < clockOffsetMsMax;
  return endpoint === 'collect' && isNear ? row.time_ms : String(sentMs);
}

function sorted(properties: Readonly<Record<string, string>>): [string, string][] {
  return Object.entries(properties).sort(([a], [b]) => (a < b ? -1 : 1));
}

function describe(sent: readonly Sending[]): string {
  return sent
    .map(
      ({ request, index, verdict, invokedMs, settledMs, event }) =>
        `request ${request}.${index} (${event.properties.marker}) ${verdict}, ${Math.round(invokedMs)} to ${Math.round(settledMs)} ms`,
    )
    .join('; ');
}

function group<T>(values: readonly T[], keyOf: (value: T) => string | undefined): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const value of values) {
    const key = keyOf(value);
    if (key === undefined) continue;
    const found = groups.get(key);
    if (found === undefined) groups.set(key, [value]);
    else found.push(value);
  }
  return groups;
}
