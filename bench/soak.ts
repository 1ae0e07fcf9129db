// Does anything grow? A steady load for minutes, while the memory of every process is sampled.

import { usedMemory } from './backlog/redis-memory.js';
import type { Context } from './context.js';
import { type CpuTimes, type ProcessName, processNames } from './deployment/deployment.js';
import { assertStored, countRecords, plus, type Stored, sumOf, untilCounted } from './deployment/stored.js';
import { median } from './figures.js';
import { type LatencyFigures, latencyFigures } from './latency/figures.js';
import { singleBodies } from './load/events.js';
import { newLatencies, recordLatency, startOpenLoop } from './load/open-loop.js';
import { cpuBetween, perRecord } from './throughput/measure.js';

export type MemorySample = {
  readonly seconds: number;
  /** Resident bytes. */
  readonly memory: Readonly<Record<ProcessName, number>>;
  /** What Redis has allocated. */
  readonly redisUsed: number;
};

export type SoakResult = {
  readonly minutes: number;
  readonly ratePerSecond: number;
  readonly events: number;
  readonly cpu: CpuTimes;
  readonly latency: LatencyFigures;
  /** Empty if the deployment runs elsewhere. */
  readonly samples: readonly MemorySample[];
};

const connections = 128;
const bodyCount = 200_000;
const samplesMax = 360;
const sampleEveryMsMin = 1_000;

/** Sends one event per request at `ratePerSecond`; rejects if one of them is not stored at the end. */
export async function runSoak(
  { deployment, redis, options, progress }: Context,
  appId: string,
  ratePerSecond: number,
): Promise<SoakResult> {
  const { own, url } = deployment;
  const seconds = options.soakMinutes * 60;
  const { ids: _, ...before }: Stored = await deployment.stored(appId);
  const bodies = singleBodies(bodyCount, { appId, first: 0 });
  const latencies = newLatencies();
  const samples: MemorySample[] = [];
  const cpuBefore = deployment.cpu();
  const startedAt = performance.now();
  const load = await startOpenLoop(
    { url, bodies, ratePerSecond, requests: Math.round(ratePerSecond * seconds), connections },
    (answered) => recordLatency(latencies, answered),
  );
  const sample = async () => {
    if (own === undefined || redis === undefined) return;
    const redisUsed = await usedMemory(redis);
    samples.push({ seconds: (performance.now() - startedAt) / 1000, memory: own.memory(), redisUsed });
  };
  const timer = setInterval(
    () => void sample().catch(() => undefined),
    Math.max(sampleEveryMsMin, (seconds * 1000) / samplesMax),
  );
  const watch = progress.watch('soak', () => {
    const last = samples.at(-1);
    const words = processNames.map((name) => `${name} ${Math.round((last?.memory[name] ?? 0) / 1e6)} MB`);
    return `${load.answers} events acknowledged${last === undefined ? '' : `; ${words.join(', ')}`}`;
  });
  try {
    const { requests: events } = await load.ended;
    clearInterval(timer);
    const expected = plus(before, { events });
    await untilCounted(() => countRecords(deployment, appId), sumOf(expected));
    const used = cpuBetween(cpuBefore, deployment.cpu());
    await assertStored(deployment, appId, expected);
    return {
      minutes: options.soakMinutes,
      ratePerSecond,
      events,
      cpu: perRecord(used, events),
      latency: latencyFigures(latencies),
      samples,
    };
  } finally {
    clearInterval(timer);
    watch.end();
  }
}

export type Growth = {
  /** Medians of resident bytes: of the second quarter of the time, and of the last. */
  readonly before: number;
  readonly after: number;
};

/** How much a process grew. The first quarter, in which it warms up, does not count. */
export function growthOf(samples: readonly MemorySample[], name: ProcessName): Growth {
  const end = samples.at(-1)?.seconds ?? 0;
  const between = (from: number, to: number) =>
    median(
      samples
        .filter(({ seconds }) => seconds >= from * end && seconds <= to * end)
        .map(({ memory }) => memory[name]),
    );
  return { before: between(0.25, 0.5), after: between(0.75, 1) };
}
