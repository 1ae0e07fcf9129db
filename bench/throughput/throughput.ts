// One run of one way: warm-up, then as fast as it is answered for about the wanted time, or at a fixed rate.

import type { Redis } from 'ioredis';
import { plus, type Records, recordTables, sumOf, untilCounted } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { type LatencyFigures, latencyFigures } from '../latency/figures.js';
import { sendClosedLoop } from '../load/closed-loop.js';
import { newLatencies, recordLatency, startOpenLoop } from '../load/open-loop.js';
import { prepareWrk, type Wrk } from '../load/wrk.js';
import type { Progress } from '../progress.js';
import { type Loaded, measure, type Run, type Subject } from './measure.js';
import { inOneList, type PreparedLoad, prepareLoad, wholeRounds } from './prepared-load.js';
import type { Way } from './ways.js';

export type ThroughputRun = Run & {
  /** For the mixture: requests above a limit, and those whose event was already stored. */
  readonly limited?: number;
  readonly repeats?: number;
  /** At a fixed rate: the latencies of the acknowledgements. */
  readonly latency?: LatencyFigures;
};

export type ThroughputOptions = {
  readonly subject: Subject;
  readonly redis?: Redis | undefined;
  readonly way: Way;
  readonly appId: string;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly connections: number;
  readonly threads: number;
  /** Sends in one thread instead of autocannon. */
  readonly wrk?: Wrk | undefined;
  /** Requests per second, instead of as fast as they are answered. */
  readonly rate?: number | undefined;
  readonly stallMs?: number;
  readonly progress: Progress;
};

/** How fast it is, is measured with this many requests per connection. */
const firstRequestsEach = 4;
const openConnections = 256;
/** With wrk: a run that takes longer than expected by more than this has failed. */
const slowestSeconds = { times: 4, more: 60 };

/**
 * Settles with the figures. Rejects if a request was not answered as expected, or if what is stored differs from what was
 * acknowledged.
 */
export async function runThroughput(options: ThroughputOptions): Promise<ThroughputRun> {
  const { subject, way, appId, seconds, connections, progress } = options;
  const { ids: _, ...already } = await subject.stored(appId);
  let before: Records = already;
  let rate = options.rate ?? 0;
  // In three parts: how many requests fit into the time is not known before, and a process's first requests are slow.
  for (const share of [0, 0.5, 0.5]) {
    const count = share === 0 ? firstRequestsEach * connections : rate * options.warmUpSeconds * share;
    const load = prepareLoad(options, wholeRounds(count, connections));
    const sender = await prepareSender(options, load, false);
    const sent = await sender.send().finally(sender.stop);
    rate = options.rate ?? sent.requests / sent.seconds;
    before = plus(before, sent.acknowledged);
  }
  await untilCounted(() => subject.count(appId), sumOf(before), options.stallMs);

  const prepared = prepareLoad(options, wholeRounds(rate * seconds, connections));
  const sender = await prepareSender(options, prepared, true);
  // wrk prints nothing before its last answer.
  const watch = progress.watch(way.name, () =>
    options.wrk === undefined
      ? `${prepared.answers()} of ${prepared.requests} requests answered`
      : `${prepared.requests} requests by wrk`,
  );
  try {
    const { run, loaded } = await measure({
      subject,
      redis: options.redis,
      appId,
      before,
      requests: prepared.requests,
      ...(options.stallMs === undefined ? {} : { stallMs: options.stallMs }),
      load: sender.send,
    });
    const { limited, repeats, latency } = loaded;
    return {
      ...run,
      ...(limited === undefined ? {} : { limited, repeats: repeats ?? 0 }),
      ...(latency === undefined ? {} : { latency }),
    };
  } finally {
    watch.end();
    sender.stop();
  }
}

type Sent = Loaded & {
  readonly requests: number;
  readonly limited?: number;
  readonly repeats?: number;
  readonly latency?: LatencyFigures;
};

type Sender = { readonly send: () => Promise<Sent>; readonly stop: () => void };

/** Prepares whatever can be prepared before the clock starts. */
async function prepareSender(
  options: ThroughputOptions,
  prepared: PreparedLoad,
  measured: boolean,
): Promise<Sender> {
  if (options.wrk !== undefined) return prepareWrkSender(options, options.wrk, prepared);
  return { send: () => sendPrepared(options, prepared, measured), stop: () => undefined };
}

async function prepareWrkSender(
  { subject, way, connections, seconds, rate }: ThroughputOptions,
  wrk: Wrk,
  { requests, bodies }: PreparedLoad,
): Promise<Sender> {
  const { records } = way;
  if (records === 'by answer' || rate !== undefined) {
    throw new BenchError(`${way.name} is sent by autocannon or at a fixed rate, not by wrk`);
  }
  const { send, stop } = await prepareWrk(wrk, {
    url: subject.url,
    path: way.path,
    bodies: inOneList(bodies),
    requests,
    connections,
    secondsMax: slowestSeconds.times * Math.ceil(seconds) + slowestSeconds.more,
  });
  return {
    stop,
    send: async () => {
      const sent = await send();
      const acknowledged = times(records, requests);
      return { requests, ...sent, generatorCpuOutside: sent.generatorCpu, acknowledged };
    },
  };
}

async function sendPrepared(
  options: ThroughputOptions,
  prepared: PreparedLoad,
  measured: boolean,
): Promise<Sent> {
  const { subject, way } = options;
  const { requests, bodies, keys } = prepared;
  if (options.rate !== undefined && measured) return sendAtRate(options, options.rate, prepared);
  const mixed = way.records === 'by answer';
  const sent = await sendClosedLoop({
    url: subject.url,
    path: way.path,
    bodies,
    requests,
    threads: options.threads,
    expectedBody: mixed ? null : way.answer,
    onProgress: prepared.answered,
    ...(mixed ? { statuses: [200, 429], keepsStatuses: true } : {}),
  });
  const { seconds, generatorCpu, statuses } = sent;
  if (way.records !== 'by answer') {
    return { requests, seconds, generatorCpu, acknowledged: times(way.records, requests) };
  }
  const answered = readAnswers(keys, statuses);
  return { requests, seconds, generatorCpu, ...answered };
}

async function sendAtRate(options: ThroughputOptions, rate: number, prepared: PreparedLoad): Promise<Sent> {
  const { subject, way } = options;
  if (way.records === 'by answer' || way.answer !== '{}') {
    throw new BenchError(`${way.name} is sent as fast as it is answered: leave --rate out`);
  }
  const { requests } = prepared;
  const latencies = newLatencies();
  const load = await startOpenLoop(
    {
      url: subject.url,
      path: way.path,
      bodies: inOneList(prepared.bodies),
      ratePerSecond: rate,
      requests,
      connections: openConnections,
    },
    (answered) => {
      recordLatency(latencies, answered);
      prepared.answered(latencies.sinceSent.totalCount);
    },
  );
  const { seconds, generatorCpu } = await load.ended;
  const acknowledged = times(way.records, requests);
  return { requests, seconds, generatorCpu, acknowledged, latency: latencyFigures(latencies) };
}

/** What the statuses of the mixture mean: each acknowledged key is stored once. */
export function readAnswers(
  keys: readonly (readonly string[])[],
  statuses: readonly Uint16Array[],
): { acknowledged: Records; limited: number; repeats: number } {
  const stored = new Set<string>();
  let limited = 0;
  let repeats = 0;
  for (const [connection, list] of keys.entries()) {
    for (const [index, key] of list.entries()) {
      if (statuses[connection]?.[index] === 429) limited += 1;
      else if (stored.has(key)) repeats += 1;
      else stored.add(key);
    }
  }
  return { acknowledged: { events: stored.size }, limited, repeats };
}

function times(records: Records, factor: number): Records {
  return Object.fromEntries(recordTables.map((table) => [table, (records[table] ?? 0) * factor]));
}
