// The load of a soak: sends numbered events at a steady rate, and checks at the end that ClickHouse holds each acknowledged event once. It
// keeps one byte per event, its outcome, so that hours fit into memory.

import { randomBytes } from 'node:crypto';
import { Agent, request } from 'undici';
import type { SluiceHandle } from '../harness/services.js';

const acknowledged = 1;
const absent = 2;
const perhaps = 3;

export type SoakLoad = {
  readonly acknowledgedEvents: number;
  readonly requests: number;
  /** Requests that were not answered 200, by status; 0 means no answer. */
  readonly refused: Readonly<Record<number, number>>;
  /** Stops sending; settles when every request has an outcome. */
  stop(): Promise<void>;
  /** Compares the outcomes with ClickHouse; settles with the counts. */
  check(sluice: SluiceHandle): Promise<SoakCheck>;
};

export type SoakCheck = {
  readonly acknowledged: number;
  readonly lost: number;
  readonly doubled: number;
  /** Events that are stored although the answer said that they are not. */
  readonly unexpected: number;
  /** Events without an answer or with an unknown outcome, and how many of them were stored. */
  readonly unknown: number;
  readonly unknownStored: number;
};

export type SoakLoadOptions = {
  readonly targets: () => readonly string[];
  readonly appId: string;
  /** Requests per second; as many as the clients can send if undefined. */
  readonly rate?: number;
  readonly clients: number;
};

/** One request in four carries this many events. */
const bulkEvents = 20;
/** One request in eight has idempotency keys, and is repeated until it is acknowledged, up to `attemptsMax` times. */
const keyedOneIn = 8;
const attemptsMax = 5;
const answerMsMax = 15_000;

export function startSoakLoad({ targets, appId, rate, clients }: SoakLoadOptions): SoakLoad {
  const mark = randomBytes(6).toString('hex');
  const agent = new Agent();
  const refused: Record<number, number> = {};
  let outcomes = new Uint8Array(1 << 20);
  let events = 0;
  let acknowledgedEvents = 0;
  let requests = 0;
  let stopping = false;
  const startedMs = performance.now();

  function take(count: number): number {
    const first = events;
    events += count;
    if (events > outcomes.length) {
      const larger = new Uint8Array(outcomes.length * 2);
      larger.set(outcomes);
      outcomes = larger;
    }
    return first;
  }

  async function sendNext(): Promise<void> {
    requests += 1;
    const own = requests;
    const count = own % 4 === 0 ? bulkEvents : 1;
    const keyed = own % keyedOneIn === 1;
    const first = take(count);
    const sent = Array.from({ length: count }, (_, index) => {
      const n = first + index;
      return {
        event: 'Soaked',
        identity: `${mark}-${Math.floor(n / 10)}@example.com`,
        ...(keyed ? { idempotency_key: `${mark}-${n}` } : {}),
        properties: { mark, n, text: 'x'.repeat(n % 200) },
      };
    });
    const body = JSON.stringify(
      count === 1 ? { app_id: appId, ...sent[0] } : { app_id: appId, events: sent },
    );
    let outcome = absent;
    for (let attempt = 0; attempt < (keyed ? attemptsMax : 1); attempt += 1) {
      const urls = targets();
      const answer = await post(agent, urls[(own + attempt) % urls.length] as string, body);
      if (answer === 'acknowledged') {
        outcome = acknowledged;
        break;
      }
      refused[answer.status] = (refused[answer.status] ?? 0) + 1;
      if (answer.perhaps) outcome = perhaps;
      if (keyed) await new Promise((resolve) => setTimeout(resolve, 500));
    }
    outcomes.fill(outcome, first, first + count);
    if (outcome === acknowledged) acknowledgedEvents += count;
  }

  async function client(): Promise<void> {
    while (!stopping) {
      if (rate !== undefined) {
        const dueMs = startedMs + (requests / rate) * 1000 - performance.now();
        if (dueMs > 0) await new Promise((resolve) => setTimeout(resolve, dueMs));
        if (stopping) return;
      }
      await sendNext();
    }
  }

  const running = Promise.all(Array.from({ length: clients }, client));
  return {
    get acknowledgedEvents() {
      return acknowledgedEvents;
    },
    get requests() {
      return requests;
    },
    refused,
    stop: async () => {
      stopping = true;
      await running;
      await agent.destroy();
    },
    check: (sluice) => check(sluice, appId, mark, outcomes.subarray(0, events)),
  };
}

type Refusal = { readonly status: number; readonly perhaps: boolean };

async function post(agent: Agent, baseUrl: string, body: string): Promise<'acknowledged' | Refusal> {
  const headers = { 'content-type': 'application/json' };
  const timeouts = { headersTimeout: answerMsMax, bodyTimeout: answerMsMax };
  try {
    const options = { method: 'POST', dispatcher: agent, headers, body, ...timeouts } as const;
    const reply = await request(`${baseUrl}/api/track`, options);
    const text = await reply.body.text();
    if (reply.statusCode === 200) return 'acknowledged';
    return { status: reply.statusCode, perhaps: text.includes('"unknown"') };
  } catch {
    return { status: 0, perhaps: true };
  }
}

/** How many events are read from ClickHouse at a time. */
const checkedAtOnce = 200_000;

async function check(
  sluice: SluiceHandle,
  appId: string,
  mark: string,
  outcomes: Uint8Array,
): Promise<SoakCheck> {
  const found = { acknowledged: 0, lost: 0, doubled: 0, unexpected: 0, unknown: 0, unknownStored: 0 };
  for (let from = 0; from < outcomes.length; from += checkedAtOnce) {
    const rows = await sluice.rows<{ n: number; copies: string }>(
      `SELECT toUInt32OrZero(properties['n']) AS n, toString(count()) AS copies FROM events
       WHERE app_id = '${appId}' AND properties['mark'] = '${mark}'
         AND toUInt32OrZero(properties['n']) >= ${from} AND toUInt32OrZero(properties['n']) < ${from + checkedAtOnce}
       GROUP BY n`,
    );
    const copies = new Map(rows.map((row) => [row.n, Number(row.copies)]));
    for (let n = from; n < Math.min(from + checkedAtOnce, outcomes.length); n += 1) {
      const stored = copies.get(n) ?? 0;
      if (stored > 1) found.doubled += 1;
      if (outcomes[n] === acknowledged) {
        found.acknowledged += 1;
        if (stored === 0) found.lost += 1;
      } else if (outcomes[n] === perhaps) {
        found.unknown += 1;
        if (stored > 0) found.unknownStored += 1;
      } else if (stored > 0) {
        found.unexpected += 1;
      }
    }
  }
  return found;
}
