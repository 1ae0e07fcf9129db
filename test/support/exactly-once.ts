// Checks what producers were told against what ClickHouse holds. Pure; one pass over the history and one over
// the rows.
//
//   acknowledged                exactly one row, with the fields that were sent
//   refused, overloaded         no row
//   unknown, no answer          no row or one
//   equal idempotency keys      one row: the first event, or one of those that were under way at once
//   never sent                  no row

import type { Invocation, SentEvent, Settlement } from './load.js';

/** A row of the view `events`, times in ms since 1970. */
export type StoredEvent = {
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
  readonly kind: 'lost' | 'doubled' | 'not absent' | 'changed' | 'not the first' | 'never sent';
  readonly marker: string;
  readonly detail: string;
};

/** One sending of one event. */
type Sending = {
  readonly event: SentEvent;
  readonly request: number;
  readonly index: number;
  readonly invokedMs: number;
  readonly settledMs: number;
  readonly verdict: 'stored' | 'absent' | 'perhaps';
};

/** What is wrong; empty when every promise was kept. */
export function findViolations(
  history: readonly (Invocation & Partial<Settlement>)[],
  rows: readonly StoredEvent[],
): Violation[] {
  const violations: Violation[] = [];
  const report = (kind: Violation['kind'], marker: string, detail: string) =>
    violations.push({ kind, marker, detail });

  const sendings = history.flatMap(sendingsOf);
  const byMarker = group(sendings, ({ event }) => event.properties.marker);
  const byKey = group(sendings, ({ event }) => event.idempotency_key);
  const rowsByMarker = group(rows, ({ properties }) => properties.marker ?? '');
  const ids = new Map<string, string>();

  for (const [marker, found] of rowsByMarker) {
    const sent = byMarker.get(marker);
    if (sent === undefined) {
      report('never sent', marker, JSON.stringify(found[0]));
      continue;
    }
    if (found.length > 1) report('doubled', marker, `${found.length} rows, ${describe(sent)}`);
    if (sent.every(({ verdict }) => verdict === 'absent')) report('not absent', marker, describe(sent));
    for (const row of found) {
      const difference = differenceOf(sent[0]?.event as SentEvent, row);
      if (difference !== '') report('changed', marker, difference);
      const other = ids.get(row.event_id);
      if (other !== undefined && other !== marker) {
        report('doubled', marker, `two rows have the id ${row.event_id}`);
      }
      ids.set(row.event_id, marker);
    }
  }
  for (const [marker, sent] of byMarker) {
    if (sent[0]?.event.idempotency_key !== undefined || rowsByMarker.has(marker)) continue;
    if (sent.some(({ verdict }) => verdict === 'stored')) report('lost', marker, describe(sent));
  }
  for (const [key, sent] of byKey) {
    const stored = [...new Set(sent.map(({ event }) => event.properties.marker))].filter((marker) =>
      rowsByMarker.has(marker),
    );
    if (stored.length > 1) report('doubled', stored.join(), `rows of one key, ${describe(sent)}`);
    if (stored.length === 0 && sent.some(({ verdict }) => verdict === 'stored')) {
      report('lost', key, describe(sent));
    }
    for (const marker of stored)
      if (!couldBeFirst(marker, sent)) report('not the first', marker, describe(sent));
  }
  return violations;
}

function sendingsOf(request: Invocation & Partial<Settlement>): Sending[] {
  return request.events.map((event, index) => ({
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

/** Whether some sending of the marker may have come before every other one with its key. */
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
function differenceOf(event: SentEvent, row: StoredEvent): string {
  const properties = Object.fromEntries(
    Object.entries(event.properties).map(([key, value]) => [
      key,
      Array.isArray(value) ? value.join('||') : String(value),
    ]),
  );
  const wanted = {
    event: event.event,
    user_id: event.user_id ?? null,
    identity: event.identity ?? '',
    session_id: event.session_id ?? '',
    time_ms: event.timestamp === undefined ? row.received_ms : String(Date.parse(event.timestamp)),
    properties: sorted(properties),
  };
  const stored = { ...row, properties: sorted(row.properties) };
  return (Object.keys(wanted) as (keyof typeof wanted)[])
    .filter((field) => JSON.stringify(wanted[field]) !== JSON.stringify(stored[field]))
    .map(
      (field) => `${field}: sent ${JSON.stringify(wanted[field])}, stored ${JSON.stringify(stored[field])}`,
    )
    .join('; ');
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
