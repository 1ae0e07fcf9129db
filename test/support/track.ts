// Requests to POST /api/track and what they leave in ClickHouse. A test says what each request must have
// stored; one look at the end compares that with all there is, so that nothing else may be there either.

import { isDeepStrictEqual } from 'node:util';
import type { SluiceHandle } from './sluice.js';
import { until } from './wait.js';

export type Reply = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The parsed body; undefined when it is no JSON. */
  readonly json: unknown;
};

export type Sent = {
  /** Strings and bytes go out as they are, everything else as JSON. */
  readonly body: unknown;
  /** With the question mark. */
  readonly query?: string;
  /** Over `content-type: application/json`; undefined leaves a header out. */
  readonly headers?: Readonly<Record<string, string | undefined>>;
};

/** Posts to /api/track and settles with the whole reply, whatever its status. */
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

type Validation = 'strict' | 'lenient';

/**
 * Adds an environment with these options of `environments set`. Settles with its app_id when the API has them:
 * it reads settings anew within a second, and only the validation shows from outside that it did.
 */
export async function addEnvironment(
  sluice: SluiceHandle,
  name: string,
  validation: Validation,
  options: readonly string[] = [],
): Promise<string> {
  const added = await sluice.admin('environments', 'add', sluice.bootstrap.account_id, name);
  const { app_id } = added as { app_id: string };
  const set = async (wanted: Validation) => {
    await sluice.admin('environments', 'set', app_id, ...options, '--validation', wanted);
    await untilValidation(sluice, app_id, wanted);
  };
  await set('lenient');
  if (validation === 'strict') await set('strict');
  return app_id;
}

/**
 * Settles when every API process validates so, and knows all that was set before: it reads all settings at once.
 * Asks with an event that both refuse, the lenient one for the user that is missing without the null.
 */
export async function untilValidation(
  sluice: Pick<SluiceHandle, 'api'>,
  appId: string,
  wanted: Validation,
): Promise<void> {
  const body = { app_id: appId, event: 'x', identity: null };
  await until(
    async () => {
      const replies = await Promise.all(sluice.api.map((api) => track(api.baseUrl, { body })));
      return replies.every(({ json }) => {
        const { code } = (json as { err: { code: string } }).err;
        return (code === 'missing_user') === (wanted === 'lenient');
      });
    },
    { deadlineMs: 30_000, what: `environment ${appId} is ${wanted}` },
  );
}

/** An event as ClickHouse has it. */
export type StoredEvent = {
  readonly event: string;
  readonly identity: string;
  readonly user_id: string | null;
  readonly session_id: string;
  readonly properties: Readonly<Record<string, string>>;
  /** UTC, to the millisecond: `2026-03-01 11:30:00.250`. */
  readonly time: string;
};

/** The time of an event without timestamp: between the request and its reply. */
export type Between = { readonly fromMs: number; readonly toMs: number };

export type ExpectedEvent = Omit<StoredEvent, 'time'> & { readonly time: string | Between };

/** All events of an environment. */
export function storedEvents(sluice: SluiceHandle, appId: string): Promise<StoredEvent[]> {
  return sluice.rows<StoredEvent>(
    `SELECT event, identity, toString(user_id) AS user_id, session_id, properties, toString(time) AS time
     FROM events WHERE app_id = '${appId}'`,
  );
}

/** Waits until an environment has as many events as are expected; settles with all it has. */
export async function untilStored(
  sluice: SluiceHandle,
  appId: string,
  count: number,
): Promise<StoredEvent[]> {
  await until(
    async () => {
      const [row] = await sluice.rows<{ stored: string }>(
        `SELECT toString(count()) AS stored FROM events WHERE app_id = '${appId}'`,
      );
      return Number(row?.stored) >= count;
    },
    { deadlineMs: 60_000, what: `${count} events are stored` },
  );
  return storedEvents(sluice, appId);
}

/** What is missing and what should not be there, in words; nothing when both sides agree. */
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
    ...missing.map((row) => `missing: ${shown(row)}`),
    ...[...left.values()].flat().map((row) => `not expected: ${shown(row)}`),
  ];
}

function matches(wanted: ExpectedEvent, row: StoredEvent): boolean {
  const { time, ...rest } = wanted;
  const { time: storedTime, ...storedRest } = row;
  return (
    isDeepStrictEqual(rest, storedRest) &&
    (typeof time === 'string' ? time === storedTime : lies(storedTime, time))
  );
}

function lies(time: string, { fromMs, toMs }: Between): boolean {
  const ms = Date.parse(`${time.replace(' ', 'T')}Z`);
  return ms >= fromMs && ms <= toMs;
}

function shown(row: unknown): string {
  const text = JSON.stringify(row);
  return text.length > 1_000 ? `${text.slice(0, 1_000)}…` : text;
}
