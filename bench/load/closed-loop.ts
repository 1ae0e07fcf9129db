// Load as fast as the service answers: every connection sends its next request when the last one is answered (autocannon,
// no pipelining). Finds the highest rate. Latencies are not measured, since they would only reflect the number of
// connections. With several threads, each has an autocannon with some of the connections.

import { Worker } from 'node:worker_threads';
import { BenchError } from '../failure.js';
import {
  type ClosedLoopOptions,
  type ConnectionsResult,
  type Moment,
  prepareConnections,
} from './connections.js';

export type ClosedLoopResult = {
  /** From the first request to the last answer. */
  readonly seconds: number;
  /** CPU time in µs that this process used meanwhile. */
  readonly generatorCpu: number;
  /** With `keepsStatuses`: the statuses of each connection's answers, in the order of its requests. */
  readonly statuses: readonly Uint16Array[];
};

/** What a thread gets; the buffers of its bodies are copied. */
export type ThreadData = {
  readonly load: Omit<ClosedLoopOptions, 'threads' | 'onProgress' | 'bodies'>;
  readonly bodies: readonly (readonly Uint8Array[])[];
  /** Of 32 bits, one per thread: its answers so far. */
  readonly answers: SharedArrayBuffer;
  readonly index: number;
};

const progressEveryMs = 1_000;

/** Settles when all requests were answered as expected; rejects if one was not. */
export async function sendClosedLoop(options: ClosedLoopOptions): Promise<ClosedLoopResult> {
  const { bodies, threads = 1, onProgress } = options;
  const count = Math.min(threads, bodies.length);
  const answers = new SharedArrayBuffer(4 * count);
  const senders = await Promise.all(
    Array.from({ length: count }, (_, index) => {
      const own = bodies.filter((_list, connection) => connection % count === index);
      const load = { ...options, requests: shareOf(options.requests, bodies.length, own.length) };
      return count === 1 ? prepareHere(load, own, answers) : prepareThread(load, own, answers, index);
    }),
  );
  const counters = new Int32Array(answers);
  const timer = setInterval(
    () => onProgress?.(counters.reduce((sum, value) => sum + value, 0)),
    progressEveryMs,
  );
  try {
    const results = await Promise.all(senders.map((send) => send()));
    assertAnswered(options.requests, results);
    const between = (value: (moment: Moment) => number) =>
      Math.max(...results.map(({ end }) => value(end))) -
      Math.min(...results.map(({ start }) => value(start)));
    const statuses = bodies.map(
      (_, connection) =>
        results[connection % count]?.statuses[Math.floor(connection / count)] ?? new Uint16Array(),
    );
    return {
      seconds: between(({ ms }) => ms) / 1000,
      generatorCpu: between(({ cpu }) => cpu),
      statuses: options.keepsStatuses ? statuses : [],
    };
  } finally {
    clearInterval(timer);
  }
}

type Send = () => Promise<ConnectionsResult>;

async function prepareHere(
  options: ClosedLoopOptions,
  bodies: readonly (readonly Buffer[])[],
  answers: SharedArrayBuffer,
): Promise<Send> {
  const counter = new Int32Array(answers);
  return () => prepareConnections({ ...options, bodies }, counter, 0)();
}

async function prepareThread(
  options: ClosedLoopOptions,
  bodies: readonly (readonly Buffer[])[],
  answers: SharedArrayBuffer,
  index: number,
): Promise<Send> {
  const { url, path, requests, statuses, expectedBody, keepsStatuses } = options;
  const given = { url, path, requests, statuses, expectedBody, keepsStatuses };
  const load = JSON.parse(JSON.stringify(given)) as ThreadData['load'];
  const workerData: ThreadData = { load, bodies, answers, index };
  const worker = new Worker(new URL('./thread.js', import.meta.url), { workerData });
  const message = () =>
    new Promise<unknown>((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
    });
  await message();
  return async () => {
    const result = message();
    worker.postMessage('start');
    return (await result) as ConnectionsResult;
  };
}

/** The requests of some of the connections, if each connection sends the same number. */
function shareOf(requests: number, connections: number, own: number): number {
  if (requests % connections !== 0 && own !== connections) {
    throw new BenchError('the requests must be the same number for each connection');
  }
  return Math.round((requests / connections) * own);
}

function assertAnswered(requests: number, results: readonly ConnectionsResult[]): void {
  const answers = results.reduce((sum, result) => sum + result.answers, 0);
  const faults = results.reduce((sum, result) => sum + result.faults, 0);
  const refused = new Map<number, number>();
  for (const result of results) {
    for (const [status, count] of result.refused) refused.set(status, (refused.get(status) ?? 0) + count);
  }
  if (answers === requests && faults === 0 && refused.size === 0) return;
  const statuses = [...refused].map(([status, count]) => `${count} × ${status}`).join(', ') || 'all 200';
  const fault = results.map((result) => result.fault).find((text) => text !== '');
  throw new BenchError(
    `${answers} of ${requests} requests were answered, ${faults} not as they should, ${statuses}${
      fault === undefined ? '' : `; the first: ${fault}`
    }`,
  );
}
