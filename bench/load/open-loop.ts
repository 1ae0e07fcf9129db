// Load at a fixed rate: a request is due at its time whether or not earlier ones were answered. So a pause of the service
// shows in the latencies of everything that was due meanwhile. It has a small HTTP client of its own: autocannon sends a
// second's requests at the beginning of the second, and at 10,000 requests per second it would take the CPU that the
// service needs.

import { Socket } from 'node:net';
import { BenchError } from '../failure.js';
import { type Histogram, newHistogram, record } from '../latency/histogram.js';
import { isAccepted, mayBecomeAccepted, openSocket, requestText } from './raw-request.js';

export type OpenLoopOptions = {
  readonly url: string;
  /** /api/track by default. */
  readonly path?: string;
  /** Sent in turn, repeatedly. */
  readonly bodies: readonly Buffer[];
  readonly ratePerSecond: number;
  readonly requests: number;
  /** Requests under way at most. What is due beyond that waits, and its latency grows. */
  readonly connections: number;
};

export type OpenLoopResult = {
  readonly seconds: number;
  readonly generatorCpu: number;
  /** From the moment a request was due, in ms, ascending. This includes delays of the generator itself. */
  readonly latenciesSinceDue: Float64Array;
  /** From the write to the answer, in ms, ascending. */
  readonly latenciesSinceSent: Float64Array;
};

/** Times of one answered request by `performance.now()`. */
type Answered = {
  readonly request: number;
  readonly dueAt: number;
  readonly sentAt: number;
  /** Whether it could not be sent when due because no connection was free. */
  readonly waited: boolean;
  readonly answeredAt: number;
};

type Connection = {
  socket: Socket;
  /** The request under way, or -1. */
  request: number;
  sentAt: number;
  waited: boolean;
  received: string;
};

/** If the service answers nothing for this long, the run fails. */
const silenceMsMax = 30_000;

/** Settles when all requests were answered 200 `{}`; rejects at the first that was not. */
export async function sendOpenLoop(options: OpenLoopOptions): Promise<OpenLoopResult> {
  const sinceDue = new Float64Array(options.requests);
  const sinceSent = new Float64Array(options.requests);
  const load = await startOpenLoop(options, ({ request, dueAt, sentAt, answeredAt }) => {
    sinceDue[request] = answeredAt - dueAt;
    sinceSent[request] = answeredAt - sentAt;
  });
  const { seconds, generatorCpu } = await load.ended;
  return {
    seconds,
    generatorCpu,
    latenciesSinceDue: sinceDue.sort(),
    latenciesSinceSent: sinceSent.sort(),
  };
}

/** Latencies of acknowledgements. */
export type Latencies = {
  /** From the write; for a request that found no free connection when it was due, from that moment. */
  readonly acknowledged: Histogram;
  /** From the write to the answer. */
  readonly sinceSent: Histogram;
  /** From the moment it was due, so it includes delays of the generator itself. */
  readonly sinceDue: Histogram;
};

export function newLatencies(): Latencies {
  return { acknowledged: newHistogram(), sinceSent: newHistogram(), sinceDue: newHistogram() };
}

/** Records one answer. */
export function recordLatency(
  latencies: Latencies,
  { dueAt, sentAt, waited, answeredAt }: Omit<Answered, 'request'>,
): void {
  record(latencies.acknowledged, answeredAt - (waited ? dueAt : sentAt));
  record(latencies.sinceSent, answeredAt - sentAt);
  record(latencies.sinceDue, answeredAt - dueAt);
}

export type OpenLoop = {
  /** The number of answers so far. */
  readonly answers: number;
  /** Stops sending; `ended` settles when everything under way is answered. */
  stop(): void;
  /** Settles when all requests were answered 200 `{}`; rejects at the first that was not. */
  readonly ended: Promise<{
    readonly requests: number;
    readonly seconds: number;
    readonly generatorCpu: number;
  }>;
};

/** Opens the connections and begins to send; `requests` may be Infinity, until `stop`. */
export async function startOpenLoop(
  options: OpenLoopOptions,
  onAnswer: (answered: Answered) => void,
): Promise<OpenLoop> {
  const { url, path = '/api/track', ratePerSecond } = options;
  const texts = options.bodies.map((body) => requestText(url, path, body));
  let finish: () => void = () => undefined;
  let fail: (error: Error) => void = () => undefined;
  const finished = new Promise<void>((resolve, reject) => {
    finish = resolve;
    fail = reject;
  });
  const idle: Connection[] = [];
  const all: Connection[] = [];

  /** Gives a connection a socket. The service closes connections that are idle for long, which is not a fault. */
  async function join(connection: Connection): Promise<void> {
    const socket = await openSocket(url);
    connection.socket = socket;
    socket.setEncoding('latin1');
    socket.on('data', (text) => receive(connection, String(text)));
    socket.on('error', () => undefined);
    socket.on('close', () => {
      if (connection.request !== -1) return fail(new BenchError('the service closed a connection'));
      idle.splice(idle.indexOf(connection), 1);
      join(connection).catch(fail);
    });
    idle.push(connection);
  }
  await Promise.all(
    Array.from({ length: connectionsOf(options) }, () => {
      const connection = { socket: new Socket(), request: -1, sentAt: 0, waited: false, received: '' };
      all.push(connection);
      return join(connection);
    }),
  );

  let requests = options.requests;
  let answers = 0;
  let next = 0;
  /** When a due request last found no free connection. */
  let exhaustedAt = Number.NEGATIVE_INFINITY;
  const startedAt = performance.now();
  let answeredAt = startedAt;
  const cpuBefore = process.cpuUsage();
  const dueAt = (request: number) => startedAt + (request * 1000) / ratePerSecond;

  function sendDue(): void {
    const now = performance.now();
    while (next < requests && dueAt(next) <= now) {
      // In turn, as many producers would.
      const connection = idle.shift();
      if (connection === undefined) {
        exhaustedAt = now;
        return;
      }
      connection.request = next;
      connection.sentAt = performance.now();
      connection.waited = dueAt(next) <= exhaustedAt;
      connection.socket.write(texts[next % texts.length] as Buffer);
      next += 1;
    }
  }

  function receive(connection: Connection, text: string): void {
    connection.received += text;
    const { received, request, sentAt, waited } = connection;
    if (!isAccepted(received)) {
      if (!mayBecomeAccepted(received)) {
        fail(new BenchError(`a request was answered: ${received.slice(0, 500)}`));
      }
      return;
    }
    const now = performance.now();
    onAnswer({ request, dueAt: dueAt(request), sentAt, waited, answeredAt: now });
    connection.received = '';
    connection.request = -1;
    idle.push(connection);
    answers += 1;
    answeredAt = now;
    if (answers === requests) finish();
    else if (next < requests && dueAt(next) <= now) sendDue();
  }

  const timer = setInterval(() => {
    sendDue();
    if (next > answers && performance.now() - answeredAt > silenceMsMax) {
      fail(new BenchError(`${next - answers} requests are not answered within ${silenceMsMax / 1000} s`));
    }
  }, 1);
  const ended = finished
    .finally(() => {
      clearInterval(timer);
      for (const { socket } of all) socket.removeAllListeners('close').destroy();
    })
    .then(() => {
      const { user, system } = process.cpuUsage(cpuBefore);
      return { requests, seconds: (performance.now() - startedAt) / 1000, generatorCpu: user + system };
    });
  // `ended` reports the error to whoever waits for it.
  ended.catch(() => undefined);
  return {
    get answers() {
      return answers;
    },
    stop: () => {
      requests = Math.min(requests, next);
      if (answers === requests) finish();
    },
    ended,
  };
}

/** Fewer connections at a low rate, so that each is used twice per second: idle ones would be closed. */
function connectionsOf({ connections, ratePerSecond }: OpenLoopOptions): number {
  return Math.min(connections, Math.max(1, Math.ceil(ratePerSecond / 2)));
}
