// Requests to POST /api/track and the rows that they leave in ClickHouse. A test lists what each request must have
// stored. One query at the end compares that with all rows, so anything else is found too.

import { isDeepStrictEqual } from 'node:util';
import type { Deployment } from './sluice.js';
import { until } from './wait.js';

export type Reply = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The parsed body; undefined when it is not JSON. */
  readonly json: unknown;
};

export type Sent = {
  /** Strings and bytes are sent as they are, everything else as JSON. */
  readonly body: unknown;
  /** Including the question mark. */
  readonly query?: string;
  /** Added to `content-type: application/json`; undefined leaves a header out. */
  readonly headers?: Readonly<Record<string, string | undefined>>;
};

/** Posts to /api/track; settles with the whole reply, whatever its status. */
export async function track(baseUrl: string, { body, query, headers }: Sent): Promise<Reply> {
  const sent = new Headers();
  for (const [name, value] of Object.entries({ 'content-type': 'application/json', ...headers })) {
    if (value !== undefined) sent.set(name, value);
  }
  const bytes =
    body instanceof Uint8Array
      ? body
      : new TextEncoder().encode(typeof body === 'string' ? body : JSON.stringify(body));
  const reply = await fetch(`${baseUrl}/api/track${query ?? ''}`, {
    method: 'POST',
    headers: sent,
    body: bytes as Uint8Array<ArrayBuffer>,
    signal: AbortSignal.timeout(20_000),
  });
  const text = await reply.text();
  return { status: reply.status, headers: reply.headers, text, json: parsed(text) };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export type StoredEvent = {
  readonly event: string;
  readonly identity: string;
  readonly user_id: string | null;
  readonly session_id: string;
  readonly properties: Readonly<Record<string, string>>;
  /** UTC, to the millisecond: `2026-03-01 11:30:00.250`. */
  readonly time: string;
};

/** The time of an event without a timestamp lies between the request and its reply. */
export type Between = { readonly fromMs: number; readonly toMs: number };

export type ExpectedEvent = Omit<StoredEvent, 'time'> & { readonly time: string | Between };

export function storedEvents(sluice: Deployment, appId: string): Promise<StoredEvent[]> {
  return sluice.rows<StoredEvent>(
    `SELECT event, identity, toString(user_id) AS user_id, session_id, properties, toString(time) AS time
     FROM events WHERE app_id = '${appId}'`,
  );
}

/** Waits until an environment has at least `count` events; settles with all of them. */
export async function untilStored(sluice: Deployment, appId: string, count: number): Promise<StoredEvent[]> {
  await until(async () => {
    const [row] = await sluice.rows<{ stored: string }>(
      `SELECT toString(count()) AS stored FROM events WHERE app_id = '${appId}'`,
    );
    return Number(row?.stored) >= count;
  }, `${count} events are stored`);
  return storedEvents(sluice, appId);
}

/** Describes what is missing and what should not be there; empty when both sides agree. */
export function differences(expected: readonly ExpectedEvent[], stored: readonly StoredEvent[]): string[] {
  const left = new Map<string, StoredEvent[]>();
  for (const row of stored) {
    const rows = left.get(row.event);
    if (rows === undefined) left.set(row.event, [row]);
    else rows.push(row);
  }
  const missing = expected.filter((wanted) => {
    const rows = left.get(wanted.event) ?? [];
    const index = rows.findIndex((row) => matches(wanted, row));
    if (index >= 0) rows.splice(index, 1);
    return index < 0;
  });
  return [
    ...missing.map((row) => `missing: ${asText(row)}`),
    ...[...left.values()].flat().map((row) => `not expected: ${asText(row)}`),
  ];
}

function matches(wanted: ExpectedEvent, row: StoredEvent): boolean {
  const { time, ...rest } = wanted;
  const { time: storedTime, ...storedRest } = row;
  return (
    isDeepStrictEqual(rest, storedRest) &&
    (typeof time === 'string' ? time === storedTime : isBetween(storedTime, time))
  );
}

function isBetween(time: string, { fromMs, toMs }: Between): boolean {
  const ms = Date.parse(`${time.replace(' ', 'T')}Z`);
  return ms >= fromMs && ms <= toMs;
}

function asText(row: unknown): string {
  const text = JSON.stringify(row);
  return text.length > 1_000 ? `${text.slice(0, 1_000)}…` : text;
}
