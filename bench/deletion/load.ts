// Ingestion that goes on while users are deleted: single events at half of the highest rate, in short runs one after
// another, so that latencies before and during the deletion can be separated.

import { BenchError } from '../failure.js';
import { percentile } from '../figures.js';
import type { Spread } from '../latency/latency.js';
import { sendClosedLoop } from '../load/closed-loop.js';
import { singleBodies } from '../load/events.js';
import { sendOpenLoop } from '../load/open-loop.js';
import type { DeletionDeployment } from './client.js';

export type Load = {
  readonly acknowledgedSinceDueMs: Spread;
  readonly acknowledgedSinceSentMs: Spread;
  /** The same for each run of a few seconds: how much they vary without any deletion. */
  readonly p99SinceSentMsOfRuns: readonly number[];
};

export type Ingestion = {
  readonly ratePerSecond: number;
  /** Sends for this many runs. */
  measure(runs: number): Promise<Load>;
  /** Sends until `stop`, which settles with the figures of the runs between the two calls. */
  start(): { submitted(): void; completed(): void; stop(): Promise<Load> };
  /** Rejects unless ClickHouse holds exactly what was acknowledged. */
  assertStored(lastSegmentBefore: string): Promise<void>;
};

const runSeconds = 3;
const connections = 128;
const bodyCount = 200_000;
const closedLoop = { connections: 64, bodiesEach: 2000, warmUpRequests: 40_000, requests: 80_000 };
const storedMsMax = 60_000;

/** Settles when the rate is known and the service is warm. */
export async function sendIngestion(
  { deployment, appIds: [appId] }: DeletionDeployment,
  givenRate: number | undefined,
): Promise<Ingestion> {
  const bodies = singleBodies(bodyCount, { appId, first: 0 });
  const { url } = deployment;
  let acknowledged = 0;

  async function findRate(): Promise<number> {
    const each = Array.from({ length: closedLoop.connections }, (_, connection) =>
      bodies.slice(connection * closedLoop.bodiesEach, (connection + 1) * closedLoop.bodiesEach),
    );
    await sendClosedLoop({ url, bodies: each, requests: closedLoop.warmUpRequests });
    const { seconds } = await sendClosedLoop({ url, bodies: each, requests: closedLoop.requests });
    acknowledged += closedLoop.warmUpRequests + closedLoop.requests;
    return Math.round(closedLoop.requests / seconds / 2);
  }

  const ratePerSecond = givenRate ?? (await findRate());
  const run = async () => {
    const requests = ratePerSecond * runSeconds;
    const sent = await sendOpenLoop({ url, bodies, ratePerSecond, requests, connections });
    acknowledged += requests;
    return sent;
  };
  await run();

  return {
    ratePerSecond,
    async measure(runs) {
      const sent = [];
      for (let number = 0; number < runs; number += 1) sent.push(await run());
      return loadOf(sent);
    },
    start() {
      let stopped = false;
      let [first, end] = [0, 0];
      const sent: Awaited<ReturnType<typeof run>>[] = [];
      const going = (async () => {
        while (!stopped) sent.push(await run());
      })();
      // Handled when it is stopped.
      going.catch(() => undefined);
      return {
        submitted: () => {
          first = sent.length;
        },
        completed: () => {
          end = sent.length + 1;
        },
        stop: async () => {
          stopped = true;
          await going;
          return loadOf(sent.slice(first, end));
        },
      };
    },
    async assertStored(lastSegmentBefore) {
      const deadline = performance.now() + storedMsMax;
      for (;;) {
        const [row] = await deployment.rows<{ events: number }>(
          `SELECT toUInt32(count()) AS events FROM events WHERE app_id = '${appId}' AND segment > ${lastSegmentBefore}`,
        );
        if (row?.events === acknowledged) return;
        if (performance.now() > deadline) {
          throw new BenchError(`${acknowledged} events were acknowledged, ClickHouse holds ${row?.events}`);
        }
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    },
  };
}

type Sent = { readonly latenciesSinceDue: Float64Array; readonly latenciesSinceSent: Float64Array };

function loadOf(runs: readonly Sent[]): Load {
  return {
    acknowledgedSinceDueMs: spreadOf(runs.map((run) => run.latenciesSinceDue)),
    acknowledgedSinceSentMs: spreadOf(runs.map((run) => run.latenciesSinceSent)),
    p99SinceSentMsOfRuns: runs.map((run) => percentile(run.latenciesSinceSent, 99)),
  };
}

function spreadOf(runs: readonly Float64Array[]): Spread {
  const all = new Float64Array(runs.reduce((sum, run) => sum + run.length, 0));
  let at = 0;
  for (const run of runs) {
    all.set(run, at);
    at += run.length;
  }
  all.sort();
  return { p50: percentile(all, 50), p99: percentile(all, 99), max: percentile(all, 100) };
}
