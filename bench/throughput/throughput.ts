// One run of one way: warm-up, then as fast as it is answered for the wanted time, or at a fixed rate.

import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { plus, type Records, recordTables, sumOf, untilCounted } from '../deployment/stored.js';
import { figure } from '../figures.js';
import { bodySource } from '../load/bodies.js';
import { type LatencyFigures, latencyFigures } from '../load/histogram.js';
import type { MergedSecond } from '../load/second.js';
import { allAnswered, type LoadResult, prepareLoad } from '../load/threads.js';
import { prepareWrk, type Wrk } from '../load/wrk.js';
import type { Progress } from '../progress.js';
import { type Loaded, measure, type Run, type Subject } from './measure.js';
import type { Way } from './ways.js';

export type ThroughputRun = Run & {
  /** At a fixed rate: from when each request was due to its answer. */
  readonly latency?: LatencyFigures;
};

export type ThroughputOptions = {
  readonly subject: Subject;
  readonly redis?: Redis | undefined;
  readonly way: Way;
  /** In turn; what is stored is counted by the first. */
  readonly appIds: readonly string[];
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly connections: number;
  readonly threads: number;
  /** Sends in one thread instead of the bench. */
  readonly wrk?: Wrk | undefined;
  /** Requests per second, instead of as fast as they are answered. */
  readonly rate?: number | undefined;
  readonly stallMs?: number;
  readonly progress: Progress;
  /** Begins with the load and is told when it ended. */
  readonly beside?: () => () => Promise<unknown>;
};

const openConnections = 256;
/** How fast wrk is answered is tried for this part of a second before a run. */
const trialSeconds = 0.2;
/** With wrk: a run that takes longer than expected by more than this has failed. */
const slowestSeconds = { times: 4, more: 60 };
/** Bodies that must differ are made before the clock starts, and some more than are likely to be sent. */
const aheadTimes = 1.2;

/**
 * Settles with the figures and the seconds of the load. Rejects if a request was not answered as expected, or if what is
 * stored differs from what was acknowledged.
 */
export async function runThroughput(
  options: ThroughputOptions,
): Promise<{ run: ThroughputRun; seconds: readonly MergedSecond[] }> {
  const { subject, way, seconds, progress, rate, wrk } = options;
  const appId = options.appIds[0] ?? '';
  const { ids: _, ...already } = await subject.stored(appId);
  let before: Records = already;
  const warm = await sendHere(options, options.warmUpSeconds, 0).then(({ send }) => send());
  before = plus(before, warm.acknowledged);
  let perSecond = warm.requests / warm.seconds;
  if (wrk !== undefined) {
    const trial = await sendByWrk(options, wrk, perSecond * trialSeconds);
    const tried = await trial.send();
    before = plus(before, tried.acknowledged);
    perSecond = tried.requests / tried.seconds;
  }
  await untilCounted(() => subject.count(appId), sumOf(before), options.stallMs);

  const wanted = Math.ceil(perSecond * seconds);
  const prepared =
    wrk === undefined
      ? await sendHere(options, seconds, wanted * aheadTimes)
      : await sendByWrk(options, wrk, wanted);
  // wrk prints nothing before its last answer.
  const watch = progress.watch(way.name, () =>
    wrk === undefined ? `${prepared.answers()} requests answered` : `${wanted} requests by wrk`,
  );
  try {
    const load = async () => {
      const end = options.beside?.();
      const sent = await prepared.send();
      await end?.();
      return sent;
    };
    const { run, loaded } = await measure({ ...options, appId, before, load });
    return {
      run: { ...run, ...(rate && { latency: latencyFigures(loaded.series) }) },
      seconds: loaded.series,
    };
  } finally {
    watch.end();
    prepared.end();
  }
}

type Sent = Loaded & { readonly series: readonly MergedSecond[] };
type Prepared = {
  readonly send: () => Promise<Sent>;
  readonly answers: () => number;
  /** Ends a generator that has not sent. */
  readonly end: () => void;
};

async function sendHere(
  { subject, way, appIds, connections, threads, rate }: ThroughputOptions,
  seconds: number,
  ahead: number,
): Promise<Prepared> {
  let answers = 0;
  const load = await prepareLoad(
    {
      url: subject.url,
      way: way.name,
      appIds,
      connections: rate === undefined ? connections : openConnections,
      rate,
      seconds,
      threads,
      sendsAll: true,
      ahead,
    },
    ({ endings }) => {
      for (const count of Object.values(endings)) answers += count;
    },
  );
  return {
    answers: () => answers,
    send: async () => loadedOf(way, await load.send()),
    end: () => load.stop(),
  };
}

/** Throws BenchError unless all requests were answered as they should be. */
export function loadedOf({ records }: Way, result: LoadResult): Sent {
  const { seconds: series, elapsedSeconds: seconds, generatorCpu, generatorShare } = result;
  const requests = allAnswered(series);
  return { requests, seconds, generatorCpu, generatorShare, acknowledged: times(records, requests), series };
}

async function sendByWrk(
  { subject, way, appIds, connections, seconds }: ThroughputOptions,
  wrk: Wrk,
  wanted: number,
): Promise<Prepared> {
  // Each connection sends the same number.
  const requests = Math.max(1, Math.round(wanted / connections)) * connections;
  const keyPrefix = randomBytes(6).toString('hex');
  const next = bodySource({ way, appIds, keyPrefix, ahead: requests });
  const count = way.different ? requests : Math.min(requests, 128_000);
  const { send, stop } = await prepareWrk(wrk, {
    url: subject.url,
    path: way.path,
    bodies: Array.from({ length: count }, next),
    requests,
    connections,
    secondsMax: slowestSeconds.times * Math.ceil(seconds) + slowestSeconds.more,
  });
  return {
    answers: () => 0,
    end: stop,
    send: async () => {
      const sent = await send();
      const generatorShare = sent.generatorCpu / 1e6 / sent.seconds;
      const acknowledged = times(way.records, requests);
      return { requests, ...sent, generatorShare, generator: 'wrk', acknowledged, series: [] };
    },
  };
}

function times(records: Records, factor: number): Records {
  return Object.fromEntries(recordTables.map((table) => [table, (records[table] ?? 0) * factor]));
}

/** One line. */
export function describeRun(run: ThroughputRun): string {
  const cpu = Object.entries(run.cpu).map(([name, used]) => `${name} ${figure(used)}`);
  const parts = [
    `${figure(run.requestsPerSecond)} requests/s, ${figure(run.recordsPerSecond)} records/s`,
    `µs a record: ${cpu.join(', ')}, sum ${figure(run.cpuSum)}`,
    `${run.generator} ${figure(run.generatorCpu)}`,
    `limit: ${run.limit}`,
  ];
  if (run.latency !== undefined) {
    const { p50, p99, max } = run.latency.sinceDueMs;
    parts.push(`since due p50 ${figure(p50)}, p99 ${figure(p99)}, max ${figure(max)} ms`);
  }
  if (run.othersShare > 0.1) parts.push(`others use ${figure(100 * run.othersShare)} %: noisy`);
  return parts.join('; ');
}
