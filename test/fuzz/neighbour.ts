// A well-behaved client beside the fuzzer, in a thread of its own so that it measures the service and not the fuzzer. It sends one event
// after another on one connection, expects 200 for each, and measures how long each takes. With each event it also asks /health/live, and
// measures how much CPU time the process used before it answered.

import { Agent, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { mainThreadMs } from './process-figures.js';

export type NeighbourReport = {
  readonly tookMs: readonly number[];
  /**
   * CPU time of the process's main thread before it answered /health/live, which needs neither Redis nor a disk. Other programs on the
   * machine hardly change this figure.
   */
  readonly workedMs: readonly number[];
  /** Answers other than 200 and 503 `unknown`, and other failures. */
  readonly faults: readonly string[];
  /** How many answers were 503 `unknown`: the outcome of a commit may stay unknown when a process is paused for a moment. */
  readonly unknown: number;
};

export type Neighbour = {
  /** Settles with the results since the last call, once the event that is under way is answered. */
  report(): Promise<NeighbourReport>;
  stop(): Promise<void>;
};

type Options = {
  readonly baseUrl: string;
  readonly appId: string;
  /** The id of the process at `baseUrl`. */
  readonly pid: number;
  /** Pause between two events; 20 by default. */
  readonly pauseMs?: number;
};

const unknownOutcome = 'unknown';

export function startNeighbour(options: Options): Neighbour {
  const worker = new Worker(new URL(import.meta.url), { workerData: options });
  return {
    // An error in the thread is an uncaught one here and ends the test.
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

/** Settles with what is wrong with the answer, or with `unknown`; undefined when it is 200. */
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
      async (reply) => {
        const answer = await text(reply).catch((error: Error) => error.message);
        if (reply.statusCode === 200) return settle(undefined);
        const isUnknown = reply.statusCode === 503 && answer.includes('"code":"unknown"');
        settle(isUnknown ? unknownOutcome : `answered ${reply.statusCode}: ${answer}`);
      },
    );
    sent.setTimeout(10_000, () => sent.destroy(new Error('not answered within 10 s')));
    sent.once('error', (error) => settle(error.message));
    sent.end(body);
  });
}

/** Asks /health/live; settles with the CPU time of the process's main thread when the answer arrives. */
async function checkLiveness({ baseUrl, pid }: Options, agent: Agent): Promise<number> {
  return new Promise((settle, reject) => {
    const sent = request(`${baseUrl}/health/live`, { agent }, (reply) => {
      settle(mainThreadMs(pid));
      reply.resume();
    });
    sent.setTimeout(10_000, () => sent.destroy(new Error('/health/live not answered within 10 s')));
    sent.once('error', reject);
    sent.end();
  });
}

async function run(options: Options): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const livenessAgent = new Agent({ keepAlive: true, maxSockets: 1 });
  let tookMs: number[] = [];
  let workedMs: number[] = [];
  let faults: string[] = [];
  let unknown = 0;
  let isReportDue = false;
  parentPort?.on('message', () => {
    isReportDue = true;
  });
  for (let number = 0; ; number += 1) {
    const startedMs = performance.now();
    const before = mainThreadMs(options.pid);
    const lives = checkLiveness(options, livenessAgent);
    const fault = await send(options, agent, number);
    tookMs.push(performance.now() - startedMs);
    const unanswered = await lives.then((answeredAtMs) => workedMs.push(answeredAtMs - before), String);
    if (typeof unanswered === 'string') faults.push(unanswered);
    if (fault === unknownOutcome) unknown += 1;
    else if (fault !== undefined) faults.push(fault);
    if (isReportDue) {
      parentPort?.postMessage({ tookMs, workedMs, faults, unknown } satisfies NeighbourReport);
      [tookMs, workedMs, faults, unknown, isReportDue] = [[], [], [], 0, false];
    }
    await new Promise((resolve) => setTimeout(resolve, options.pauseMs ?? 20));
  }
}

if (!isMainThread) void run(workerData as Options);
