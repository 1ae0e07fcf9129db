// Producers for fault tests: they send single and bulk events, with and without idempotency keys, and keep a history that
// outlives every process under test. exactly-once.ts compares this history with ClickHouse.

import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import { join } from 'node:path';
import { bodyOf, type Endpoint, keyAt, paths, refusedIndexesOf, type SentEvent } from './endpoints.js';
import { tempDir } from './temp-dir.js';
import { until } from './wait.js';

/**
 * The outcome of a request: 200, any 4xx, 503 by its code, another answer (which no request should get), or no answer at
 * all.
 */
export type Outcome = 'acknowledged' | 'refused' | 'overloaded' | 'unknown' | 'unexpected' | 'unanswered';

/** Written before the request is sent. Times are in ms of one monotonic clock. */
export type Invocation = {
  readonly request: number;
  readonly invokedMs: number;
  /** By default `track`, or `bulk` for several events. */
  readonly endpoint?: Endpoint;
  readonly events: readonly SentEvent[];
};

/** Written when the outcome of the request is known. */
export type Settlement = {
  readonly request: number;
  readonly settledMs: number;
  readonly outcome: Outcome;
  /** 0 when there was no answer. */
  readonly status: number;
  readonly code: string;
  /** The message of a refusal, or why there was no answer, for the reader of a failed test. */
  readonly message?: string;
  /** `Retry-After` of a 503, in seconds. */
  readonly retryAfter?: string;
  /** Elements of a bulk request that were refused while the others were acknowledged. */
  readonly refusedIndexes: readonly number[];
};

/** A request whose outcome is known. */
export type Request = Invocation & Settlement & { readonly tookMs: number };

export type Producer = {
  /** Part of every identity, key and marker that this producer sends, so that checks find them. */
  readonly mark: string;
  readonly appId: string;
  /** Makes the next event; its content depends only on its number. */
  nextEvent(more?: Partial<Omit<SentEvent, 'properties'>>): SentEvent;
  /** Sends events in one request; a single one as a single event unless `bulk` is set. Never rejects. */
  send(baseUrl: string, events: readonly SentEvent[], bulk?: boolean): Promise<Request>;
  /** Sends records to any endpoint; never rejects. */
  sendTo(endpoint: Endpoint, baseUrl: string, events: readonly SentEvent[]): Promise<Request>;
  /** The requests that have an outcome, in the order in which they got it. */
  readonly settled: readonly Request[];
  /** The history as it was written, including requests whose outcome is not known yet. */
  readHistory(): (Invocation & Partial<Settlement>)[];
  close(): void;
};

/** After this time the producer gives a request up; no test allows an answer that late. */
export const answerMsMax = 15_000;

/** A text that marks what a producer sends. */
export function createMark(): string {
  return `mk${randomBytes(6).toString('hex')}`;
}

/**
 * Makes a producer for one environment, with a history file of its own. Producers of several environments may share a
 * mark; then their users have the same names.
 */
export function createProducer(appId: string, mark = createMark()): Producer {
  const file = join(tempDir('history'), 'history.jsonl');
  const descriptor = openSync(file, 'a');
  // Closes idle connections before the service does: the service might close one just when it is used again.
  const agent = new Agent({ keepAlive: true, timeout: 5_000 });
  const settled: Request[] = [];
  let requests = 0;
  let events = 0;

  const write = (line: object) => writeSync(descriptor, `${JSON.stringify(line)}\n`);

  async function sendTo(endpoint: Endpoint, baseUrl: string, sent: readonly SentEvent[]): Promise<Request> {
    requests += 1;
    const invocation: Invocation = {
      request: requests,
      invokedMs: performance.now(),
      endpoint,
      events: sent,
    };
    write(invocation);
    const url = `${baseUrl}${paths[endpoint]}`;
    const answer = await post(agent, url, JSON.stringify(bodyOf(endpoint, appId, sent)));
    const settlement: Settlement = {
      request: invocation.request,
      settledMs: performance.now(),
      ...readAnswer(answer),
    };
    write(settlement);
    const done = { ...invocation, ...settlement, tookMs: settlement.settledMs - invocation.invokedMs };
    settled.push(done);
    return done;
  }

  return {
    mark,
    appId,
    nextEvent: (more) => {
      events += 1;
      return { ...eventOf(mark, events), ...more };
    },
    send: (baseUrl, sent, bulk = sent.length > 1) => sendTo(bulk ? 'bulk' : 'track', baseUrl, sent),
    sendTo,
    settled,
    readHistory: () => readHistory(file),
    close: () => {
      agent.destroy();
      closeSync(descriptor);
    },
  };
}

/** Event number `n`. The numbers together cover every kind of user, time, property and key. */
function eventOf(mark: string, n: number): SentEvent {
  const marker = `${mark}-${n}`;
  // Ten events per user, which is far below the limit, except for one user who soon exceeds it.
  const user = n % 8 === 3 ? 'hot' : String(Math.floor(n / 10));
  const key = keyOf(mark, n);
  return {
    event: n % 3 === 0 ? 'Order Completed' : `Event "${n % 5}" \\ Käse \n 🧀`,
    ...(n % 4 === 1 ? { user_id: String(n) } : { identity: `${mark}-${user}@example.com` }),
    ...(n % 2 === 0 ? { session_id: `session-${n % 7}` } : {}),
    ...(n % 3 === 1
      ? { timestamp: `2026-0${1 + (n % 9)}-03T04:05:06.${String(n % 1000).padStart(3, '0')}+02:00` }
      : {}),
    ...(key === undefined ? {} : { idempotency_key: key }),
    properties: {
      marker,
      ...(n % 2 === 1 ? { amount: n / 8, currency: 'EUR' } : {}),
      ...(n % 5 === 0 ? { tags: ['a', n, 'ü"\\'] } : {}),
      ...(n % 11 === 0 ? { 'a key\nwith "signs"': `${mark} 'value' \t ${'x'.repeat(n % 300)}` } : {}),
    },
  };
}

/** Two of three events have a key; every seventh of these repeats the key of an event shortly before it. */
function keyOf(mark: string, n: number): string | undefined {
  if (n % 3 === 2) return undefined;
  return `${mark}-key-${n % 7 === 0 ? Math.max(1, n - 1 - (n % 12)) : n}`;
}

type Answer = { status: number; headers: IncomingHttpHeaders; body: string };

/** Settles with the reason when no answer came. */
function post(agent: Agent, url: string, body: string): Promise<Answer | string> {
  return new Promise((settle) => {
    const fail = (error: NodeJS.ErrnoException) =>
      settle(
        `${error.code ?? error.name}: ${error.message}${sent.reusedSocket ? ', on a connection that was used before' : ''}, ${url}`,
      );
    const sent = request(
      url,
      {
        method: 'POST',
        agent,
        headers: { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) },
        signal: AbortSignal.timeout(answerMsMax),
      },
      (reply) => {
        let text = '';
        reply.setEncoding('utf8').on('data', (piece: string) => {
          text += piece;
        });
        reply.once('end', () =>
          settle({ status: reply.statusCode ?? 0, headers: reply.headers, body: text }),
        );
        reply.once('error', fail);
      },
    );
    sent.once('error', fail);
    sent.end(body);
  });
}

function readAnswer(answer: Answer | string): Omit<Settlement, 'request' | 'settledMs'> {
  if (typeof answer === 'string')
    return { outcome: 'unanswered', status: 0, code: '', message: answer, refusedIndexes: [] };
  const { status, headers, body } = answer;
  const parsed = parse(body);
  const code = parsed.err?.code ?? '';
  const refusedIndexes = status === 200 ? refusedIndexesOf(parsed) : [];
  const retryAfter = headers['retry-after'];
  return {
    outcome: outcomeOf(status, code),
    status,
    code,
    ...(parsed.err === undefined ? {} : { message: parsed.err.message }),
    ...(retryAfter === undefined ? {} : { retryAfter }),
    refusedIndexes,
  };
}

type AnswerBody = { err?: { code: string; message: string } };

function parse(body: string): AnswerBody {
  try {
    return JSON.parse(body) as AnswerBody;
  } catch {
    return {}; // An answer that is not JSON has no code, and so no expected outcome.
  }
}

function outcomeOf(status: number, code: string): Outcome {
  if (status === 200) return 'acknowledged';
  if (status >= 400 && status < 500) return 'refused';
  if (status === 503 && (code === 'overloaded' || code === 'unknown')) return code;
  return 'unexpected';
}

function readHistory(file: string): (Invocation & Partial<Settlement>)[] {
  const requests = new Map<number, Invocation & Partial<Settlement>>();
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    if (line === '') continue;
    const entry = JSON.parse(line) as Invocation | Settlement;
    requests.set(entry.request, { ...(requests.get(entry.request) as Invocation), ...entry });
  }
  return [...requests.values()];
}

export type LoadOptions = {
  /** Base URLs of API processes, which get requests in turn. */
  readonly targets: readonly string[];
  /** Clients, each of which sends one request after another; 6 by default. */
  readonly clients?: number;
  /** Returns what to send next; by default events in requests of mixed sizes. */
  readonly next?: () => Sending;
  /**
   * Pause of a client between two requests, so that the machine has time for the service; 5 by default. While nobody waits for more
   * requests it is at least 50: a process that starts again needs some load, not the greatest.
   */
  readonly pauseMs?: number;
};

export type Sending = { readonly endpoint: Endpoint; readonly events: readonly SentEvent[] };

export type Load = {
  /** Settles when `count` further requests have had one of these outcomes (by default acknowledged) since the call. */
  more(
    count: number,
    options?: { readonly outcomes?: readonly Outcome[]; readonly deadlineMs?: number },
  ): Promise<void>;
  /** Ends the load; settles with its requests once all have an outcome. */
  stop(): Promise<readonly Request[]>;
};

const repeatsMax = 2;
const restMsMin = 50;

/**
 * Sends events until it is stopped. Every fourth request is a bulk request, and every nineteenth contains an event that
 * the contract refuses. A request without an acknowledgement is repeated if all of its events have keys.
 */
export function startLoad(producer: Producer, options: LoadOptions): Load {
  const { targets, clients = 6, pauseMs = 5, next = nextRequest } = options;
  const first = producer.settled.length;
  let stopping = false;
  let requests = 0;
  let waiting = 0;

  function nextRequest(): Sending {
    const events = Array.from({ length: requests % 4 === 0 ? 2 + (requests % 19) : 1 }, () =>
      producer.nextEvent(),
    );
    if (requests % 19 === 0) events[0] = { ...(events[0] as SentEvent), identity: 'both', user_id: '1' };
    return { endpoint: events.length > 1 ? 'bulk' : 'track', events };
  }

  async function client(): Promise<void> {
    while (!stopping) {
      requests += 1;
      const { endpoint, events } = next();
      const keyed = events.every((event) => keyAt(endpoint, event) !== undefined);
      const target = targets[requests % targets.length] as string;
      for (let repeat = 0; repeat <= repeatsMax && !stopping; repeat += 1) {
        const { outcome } = await producer.sendTo(endpoint, target, events);
        const restMs = waiting === 0 ? Math.max(pauseMs, restMsMin) : pauseMs;
        await pause(outcome === 'unanswered' ? Math.max(4 * pauseMs, restMs) : restMs);
        if (!keyed || outcome === 'acknowledged' || outcome === 'refused') break;
      }
    }
  }

  const running = Promise.all(Array.from({ length: clients }, client));
  return {
    more: async (count, { outcomes = ['acknowledged'], deadlineMs = 60_000 } = {}) => {
      const counted = () => producer.settled.filter(({ outcome }) => outcomes.includes(outcome)).length;
      const enough = counted() + count;
      waiting += 1;
      try {
        await until(() => counted() >= enough, {
          deadlineMs,
          what: `${count} more requests are ${outcomes.join(' or ')}`,
        });
      } finally {
        waiting -= 1;
      }
    },
    stop: async () => {
      stopping = true;
      await running;
      return producer.settled.slice(first);
    },
  };
}

/** Runs `action` and then stops the load, even if the action fails; otherwise the test would never end. */
export async function whileRunning<T>(load: Load, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } finally {
    await load.stop();
  }
}

export function countOutcomes(requests: readonly Request[]): Record<Outcome, number> {
  const counts: Record<Outcome, number> = {
    acknowledged: 0,
    refused: 0,
    overloaded: 0,
    unknown: 0,
    unexpected: 0,
    unanswered: 0,
  };
  for (const { outcome } of requests) counts[outcome] += 1;
  return counts;
}

function pause(ms: number): Promise<void> {
  return new Promise((settle) => setTimeout(settle, ms));
}
