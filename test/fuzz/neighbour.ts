// A well-behaved client beside the fuzzer, in a thread of its own so that it measures the service and not the fuzzer. It
// sends one event after another on one connection, expects 200 for each, and measures how long each took, and how much the
// process has worked meanwhile.

import { Agent, request } from 'node:http';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { mainThreadMs } from './process-figures.js';

export type NeighbourReport = {
  readonly tookMs: readonly number[];
  /** CPU time of the process's main thread from each event to its answer. Other programs on the machine hardly change it. */
  readonly workedMs: readonly number[];
  /** Answers other than 200 and 503 `unknown`, and other failures. */
  readonly faults: readonly string[];
};

export type Neighbour = {
  /** What it has seen since the last call, with the event that is under way: settles when that is answered. */
  report(): Promise<NeighbourReport>;
  stop(): Promise<void>;
};

type Options = {
  readonly baseUrl: string;
  readonly appId: string;
  /** Of the process at `baseUrl`. */
  readonly pid: number;
};

const pauseMs = 20;

/** Starts the client; it sends until it is stopped. */
export function startNeighbour(options: Options): Neighbour {
  const worker = new Worker(new URL(import.meta.url), { workerData: options });
  return {
    // An error of the thread is uncaught, which ends the test.
    report: () =>
      new Promise((settle) => {
        worker.once('message', settle);
        worker.postMessage('report');
      }),
    stop: async () => {
      await worker.terminate();
    },
  };
}

async function send({ baseUrl, appId }: Options, agent: Agent, number: number): Promise<string | undefined> {
  const body = JSON.stringify({ app_id: appId, event: 'Neighbour', identity: `n-${number}` });
  return new Promise((settle) => {
    const sent = request(
      `${baseUrl}/api/track`,
      {
        method: 'POST',
        agent,
        headers: { 'Content-Type': 'application/json', 'Content-Length': body.length },
      },
      (reply) => {
        let text = '';
        reply.setEncoding('utf8').on('data', (piece: string) => {
          text += piece;
        });
        // If a process is paused for a moment, the outcome of a commit may stay unknown. That is slow, not wrong.
        const isOpen = () => reply.statusCode === 503 && text.includes('"code":"unknown"');
        reply.once('end', () =>
          settle(reply.statusCode === 200 || isOpen() ? undefined : `answered ${reply.statusCode}: ${text}`),
        );
      },
    );
    sent.setTimeout(10_000, () => sent.destroy(new Error('not answered within 10 s')));
    sent.once('error', (error) => settle(error.message));
    sent.end(body);
  });
}

async function run(options: Options): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  let tookMs: number[] = [];
  let workedMs: number[] = [];
  let faults: string[] = [];
  let isAsked = false;
  parentPort?.on('message', () => {
    isAsked = true;
  });
  for (let number = 0; ; number += 1) {
    const startedMs = performance.now();
    const before = mainThreadMs(options.pid);
    const fault = await send(options, agent, number);
    tookMs.push(performance.now() - startedMs);
    workedMs.push(mainThreadMs(options.pid) - before);
    if (fault !== undefined) faults.push(fault);
    if (isAsked) {
      parentPort?.postMessage({ tookMs, workedMs, faults } satisfies NeighbourReport);
      [tookMs, workedMs, faults, isAsked] = [[], [], [], false];
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

if (!isMainThread) void run(workerData as Options);
