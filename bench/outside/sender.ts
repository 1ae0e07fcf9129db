// Sends one thread's part of a load to a deployment that runs already: at a fixed rate, where a request is due at its time
// whether or not earlier ones were answered, or as fast as requests are answered.

import { Pool } from 'undici';
import { endings, type Second, SecondCounter } from './second.js';

export type SenderOptions = {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly nextBody: () => Buffer;
  /** Never more than so many, and so many requests under way. */
  readonly connections: number;
  /** Requests per second; undefined: as fast as they are answered. */
  readonly rate: number | undefined;
  readonly seconds: number;
  /** The whole of a good answer; null: any answer 200. */
  readonly answer: string | null;
};

/** Without an answer for so long a request has failed. */
const answerMsMax = 30_000;
/** A proxy that is away is not asked faster than this by each connection. */
const pauseAfterBreakMs = 100;

/** Sends for `seconds`; settles when what was under way has been answered or has failed. Never rejects. */
export async function sendLoad(options: SenderOptions, give: (second: Second) => void): Promise<void> {
  const { origin, pathname } = new URL(options.url);
  const path = pathname.replace(/\/$/, '') + options.path;
  const pool = new Pool(origin, {
    connections: options.connections,
    pipelining: 1,
    headersTimeout: answerMsMax,
    bodyTimeout: answerMsMax,
    connectTimeout: answerMsMax,
  });
  const counter = new SecondCounter(give);
  try {
    const load = { ...options, path };
    if (options.rate === undefined) await sendFast(pool, load, counter);
    else await sendDue(pool, load, options.rate, counter);
  } finally {
    counter.flush();
    await pool.destroy();
  }
}

async function sendFast(pool: Pool, options: SenderOptions, counter: SecondCounter): Promise<void> {
  const endsAt = performance.now() + options.seconds * 1_000;
  const connection = async () => {
    while (performance.now() < endsAt) {
      const sentAt = performance.now();
      const ending = await send(pool, options);
      counter.count(ending, performance.now() - sentAt);
      if (ending === endings.connection) await pause(pauseAfterBreakMs);
    }
  };
  await Promise.all(Array.from({ length: options.connections }, connection));
}

function sendDue(pool: Pool, options: SenderOptions, rate: number, counter: SecondCounter): Promise<void> {
  const startedAt = performance.now();
  const requests = Math.max(1, Math.round(rate * options.seconds));
  const endsAt = startedAt + options.seconds * 1_000;
  const dueAt = (request: number) => startedAt + (request * 1_000) / rate;
  let next = 0;
  let underWay = 0;
  let isOver = false;
  return new Promise((settle) => {
    const sendOne = async (due: number) => {
      underWay += 1;
      const ending = await send(pool, options);
      counter.count(ending, performance.now() - due);
      underWay -= 1;
      step();
    };
    const step = () => {
      const now = performance.now();
      // First, also after the end: a step of the timer that comes late must not make due requests count as unsent while
      // there are free connections.
      while (!isOver && next < requests && dueAt(next) <= now && underWay < options.connections) {
        next += 1;
        void sendOne(dueAt(next - 1));
      }
      if (now >= endsAt && !isOver) {
        isOver = true;
        clearInterval(timer);
        // What was due and found no free connection has waited until now.
        for (; next < requests; next += 1) counter.count(endings.unsent, now - dueAt(next));
      }
      if (isOver && underWay === 0) settle();
    };
    const timer = setInterval(step, 1);
  });
}

/** Settles with how it ended; never rejects. */
async function send(pool: Pool, { path, headers, nextBody, answer }: SenderOptions): Promise<string> {
  try {
    const { statusCode, body } = await pool.request({ method: 'POST', path, headers, body: nextBody() });
    const text = await body.text();
    if (statusCode !== 200) return String(statusCode);
    return answer === null || text === answer ? '200' : endings.refused;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code?.endsWith('_TIMEOUT') ? endings.timeout : endings.connection;
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((settle) => setTimeout(settle, ms));
}
