// Sends one thread's part of a load: as fast as requests are answered, or at a fixed rate. At a fixed rate each request is due at a certain
// time, whether or not earlier ones were answered; so a pause of the service delays all requests that become due during it. autocannon
// would skip those, and send each second's share at once.

import { setTimeout as pause } from 'node:timers/promises';
import { RoundRobinPool } from 'undici';
import { wayNamed } from '../throughput/ways.js';
import { type BodyOptions, bodySource, readPayloads } from './bodies.js';
import { type LoopOptions, sendInLoop } from './closed-loop.js';
import { answerMsMax, endingOf, endings, type Second, SecondCounter } from './second.js';

export type SenderOptions = LoopOptions & {
  /** Requests per second; undefined: as fast as they are answered. At a rate, the default of `requests` is as many as become due. */
  readonly rate?: number;
  /** Whether requests that were due but had no free connection are still sent after the end; otherwise they count as unsent. */
  readonly sendsAll?: boolean;
  /** Whether the service is the session's, whose loads without a rate autocannon sends, until the first failure. */
  readonly isOwn?: boolean;
};

/** What one thread sends: requests of the way with this name. */
export type SenderPart = Omit<SenderOptions, 'path' | 'answer' | 'nextBody' | 'stop'> &
  Omit<BodyOptions, 'way' | 'payloads'> & {
    readonly way: string;
    /** A file of records. */
    readonly payloads?: string;
  };

/** Makes the first bodies. The returned function sends, as `sendLoad` does. */
export function prepareSender(part: SenderPart) {
  const way = wayNamed(part.way);
  const payloads = part.payloads === undefined ? undefined : readPayloads(part.payloads);
  const nextBody = bodySource({ ...part, way, payloads });
  const { path, answer } = way;
  return (give: (second: Second) => void, stop: AbortSignal) =>
    sendLoad({ ...part, path, answer, nextBody, stop }, give);
}

/** While a proxy is down, each connection waits this long before it retries. */
const pauseAfterBreakMs = 100;

/** Sends for `seconds`. Settles when every request was answered or has failed. */
export async function sendLoad(options: SenderOptions, give: (second: Second) => void): Promise<void> {
  const counter = new SecondCounter(give);
  if (options.rate === undefined && options.isOwn) {
    await sendInLoop(options, (ending, ms) => counter.count(ending, ms));
    return counter.flush();
  }
  const { origin, pathname } = new URL(options.url);
  // Connections are used in turn, as those of many producers would be.
  const pool = new RoundRobinPool(origin, {
    connections: options.connections,
    pipelining: 1,
    headersTimeout: answerMsMax,
    bodyTimeout: answerMsMax,
    connectTimeout: answerMsMax,
  });
  try {
    const load = { ...options, path: pathname.replace(/\/$/, '') + options.path };
    if (options.rate === undefined) await sendFast(pool, load, counter);
    else await sendDue(pool, load, options.rate, counter);
  } finally {
    counter.flush();
    await pool.destroy();
  }
}

async function sendFast(pool: RoundRobinPool, options: SenderOptions, counter: SecondCounter): Promise<void> {
  const endsAt = performance.now() + options.seconds * 1_000;
  let left = options.requests ?? Number.POSITIVE_INFINITY;
  const connection = async () => {
    for (; left > 0 && performance.now() < endsAt && options.stop?.aborted !== true; ) {
      left -= 1;
      const sentAt = performance.now();
      const ending = await send(pool, options);
      counter.count(ending, performance.now() - sentAt);
      if (ending === endings.connection) await pause(pauseAfterBreakMs);
    }
  };
  await Promise.all(Array.from({ length: options.connections }, connection));
}

function sendDue(pool: RoundRobinPool, options: SenderOptions, rate: number, counter: SecondCounter) {
  const startedAt = performance.now();
  const requests = options.requests ?? Math.max(1, Math.round(rate * options.seconds));
  const endsAt = startedAt + options.seconds * 1_000;
  const dueAt = (request: number) => startedAt + (request * 1_000) / rate;
  let next = 0;
  let underWay = 0;
  let isOver = false;
  return new Promise<void>((settle) => {
    const sendOne = async (due: number) => {
      underWay += 1;
      const ending = await send(pool, options);
      counter.count(ending, performance.now() - due);
      underWay -= 1;
      step();
    };
    const step = () => {
      const now = performance.now();
      // Sends first, even after the end: a late timer must not make requests count as unsent while connections are free.
      while (!isOver && next < requests && dueAt(next) <= now && underWay < options.connections) {
        next += 1;
        void sendOne(dueAt(next - 1));
      }
      const stopped = options.stop?.aborted === true;
      const atEnd = options.sendsAll === true ? next >= requests : now >= endsAt;
      if ((atEnd || stopped) && !isOver) {
        isOver = true;
        clearInterval(timer);
        // The remaining requests were due, but found no free connection until now.
        const due = stopped ? 0 : requests;
        for (; next < due; next += 1) counter.count(endings.unsent, now - dueAt(next));
      }
      if (isOver && underWay === 0) settle();
    };
    const timer = setInterval(step, 1);
  });
}

/** Settles with how the request ended. Never rejects. */
function send(pool: RoundRobinPool, { path, headers, nextBody, answer }: SenderOptions): Promise<string> {
  return new Promise((settle) => {
    let status = 0;
    let text = '';
    // `pool.request` would create a stream for each answer, and take more CPU from the service.
    pool.dispatch(
      { method: 'POST', path, headers, body: nextBody() },
      {
        onRequestStart: () => undefined,
        onResponseStart: (_controller, code) => {
          status = code;
        },
        onResponseData: (_controller, chunk) => {
          text += chunk.toString('latin1');
        },
        onResponseEnd: () => settle(endingOf(status, text, answer)),
        onResponseError: (_controller, error) => {
          const { code } = error as NodeJS.ErrnoException;
          settle(code?.endsWith('_TIMEOUT') ? endings.timeout : endings.connection);
        },
      },
    );
  });
}
