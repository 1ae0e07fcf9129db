// One run of one way: a warm-up, then the load, as fast as it is answered or at a fixed rate.

import { randomBytes } from 'node:crypto';
import type { Context } from '../context.js';
import { plus, type Records, sumOf, times, untilCounted } from '../deployment/stored.js';
import { figure } from '../figures.js';
import { bodySource } from '../load/bodies.js';
import { latencyFigures } from '../load/histogram.js';
import { latenciesOf, type MergedSecond } from '../load/second.js';
import { allAnswered, prepareLoad } from '../load/threads.js';
import { prepareWrk } from '../load/wrk.js';
import type { Progress } from '../progress.js';
import { type Loaded, measure, type Subject } from './measure.js';
import { type Way, wayNamed } from './ways.js';

export type ThroughputRun = Awaited<ReturnType<typeof runThroughput>>['run'];

type ContextOfRun = Pick<Context, 'options' | 'progress'>;

export type ThroughputOptions = {
  readonly subject: Subject;
  readonly way: Way;
  /** The environments, which requests use in turn; stored records are counted for the first one. */
  readonly appIds: readonly string[];
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly connections: number;
  readonly threads: number;
  /** Whether wrk sends instead of the bench, in one thread. */
  readonly byWrk?: boolean;
  /** Requests per second, instead of as fast as they are answered. */
  readonly rate?: number;
  readonly stallMs?: number;
  readonly progress: Pick<Progress, 'during'>;
  /** Called when the load begins; the returned function is called when it has ended. */
  readonly beside?: () => () => Promise<unknown>;
};

/** The connections of loads at a rate: so many that requests can be sent when they are due even if answers are slow. */
const openConnections = 256;
/** How many seconds wrk sends before a run, to find out how fast it is answered. */
const trialSeconds = 0.2;
/** A run of wrk fails if it takes longer than `times` the expected seconds plus `more` seconds. */
const slowestSeconds = { times: 4, more: 60 };
/** Bodies that never repeat are made before the clock starts: this many times the number that is likely to be sent. */
const aheadTimes = 1.2;
/** wrk repeats its bodies after this many. */
const wrkBodiesMax = 128_000;

/** A load of a way, with the options of the session. */
export function loadOf({ options, progress }: ContextOfRun, name: string, rate?: number) {
  const way = wayNamed(name);
  const { duration: seconds, threads } = options;
  const connections = options.connections ?? (rate === undefined ? way.connections : openConnections);
  return { way, rate, seconds, warmUpSeconds: 1, connections, threads, progress };
}

/** Runs a way with the options of the session; without `more`, in a new environment of the session's deployment. */
export async function runWay(
  context: ContextOfRun & Pick<Context, 'deployment'>,
  name: string,
  more: Partial<ThroughputOptions> = {},
) {
  const { deployment } = context;
  const load = loadOf(context, name, more.rate);
  const appIds = more.appIds ?? (await deployment.addEnvironments(1, load.way.limits));
  return (await runThroughput({ ...load, subject: deployment, ...more, appIds })).run;
}

/**
 * Settles with the figures and the seconds of the load. Rejects if a request was not answered as expected, or if stored and acknowledged
 * records differ.
 */
export async function runThroughput(options: ThroughputOptions) {
  const { subject, way, seconds, warmUpSeconds, progress, rate, byWrk = false, beside } = options;
  const appId = options.appIds[0] ?? '';
  const { ids: _, ...already } = await subject.stored(appId);
  let before: Records = already;
  const send = async (prepared: Prepared) => {
    const sent = await prepared.send();
    return { ...sent, acknowledged: times(way.records, sent.requests) };
  };
  /** Settles with the requests per second. */
  const warmUp = async (prepared: Prepared) => {
    const sent = await send(prepared);
    before = plus(before, sent.acknowledged);
    return sent.requests / sent.seconds;
  };
  let perSecond = await warmUp(await prepareHere(options, warmUpSeconds));
  if (byWrk) perSecond = await warmUp(await prepareByWrk(options, perSecond * trialSeconds));
  await untilCounted(() => subject.count(appId), sumOf(before), options.stallMs);

  const wanted = Math.ceil(perSecond * seconds);
  const prepared = await (byWrk
    ? prepareByWrk(options, wanted)
    : prepareHere(options, seconds, wanted * aheadTimes));
  const load = async () => {
    const end = beside?.();
    const sent = await send(prepared);
    await end?.();
    return sent;
  };
  try {
    const { run, loaded } = await progress.during(way.name, prepared.progress, () =>
      measure({ ...options, appId, before, load }),
    );
    const { series } = loaded;
    // For a run at a fixed rate: from when each request was due.
    const latency = rate === undefined ? {} : { latency: latencyFigures(latenciesOf(series)) };
    return { run: { ...run, ...latency }, seconds: series };
  } finally {
    prepared.end();
  }
}

type Prepared = {
  readonly send: () => Promise<Omit<Loaded, 'acknowledged'> & { series: readonly MergedSecond[] }>;
  readonly progress: () => string;
  /** Ends a generator that has not started to send. */
  readonly end: () => void;
};

async function prepareHere(options: ThroughputOptions, seconds: number, ahead = 0): Promise<Prepared> {
  const { subject, way, appIds, connections, threads, rate } = options;
  const part = { way: way.name, appIds, connections, rate, seconds, threads, ahead };
  const load = await prepareLoad({ url: subject.url, ...part, sendsAll: true, isOwn: true });
  return {
    progress: () => `${load.answers()} requests answered`,
    end: load.stop,
    send: async () => {
      const { seconds: series, elapsedSeconds, sent: _, ...generator } = await load.send();
      return { requests: allAnswered(series), seconds: elapsedSeconds, ...generator, series };
    },
  };
}

async function prepareByWrk(options: ThroughputOptions, wanted: number): Promise<Prepared> {
  const { subject, way, appIds, connections, seconds } = options;
  // Each connection sends the same number of requests.
  const requests = Math.max(1, Math.round(wanted / connections)) * connections;
  const keyPrefix = randomBytes(6).toString('hex');
  const next = bodySource({ way, appIds, keyPrefix, ahead: requests });
  const count = way.different ? requests : Math.min(requests, wrkBodiesMax);
  const { send, stop } = await prepareWrk({
    url: subject.url,
    path: way.path,
    bodies: Array.from({ length: count }, next),
    requests,
    connections,
    secondsMax: slowestSeconds.times * Math.ceil(seconds) + slowestSeconds.more,
  });
  return {
    // wrk prints nothing until its last answer.
    progress: () => `${requests} requests by wrk`,
    end: stop,
    send: async () => {
      const sent = await send();
      const generatorShare = sent.generatorCpu / 1e6 / sent.seconds;
      return { requests, ...sent, generatorShare, generator: 'wrk', series: [] };
    },
  };
}

export function describeRun(run: ThroughputRun): string {
  const cpu = Object.entries(run.cpu).map(([name, used]) => `${name} ${figure(used)}`);
  const { p50, p99, max } = run.latency?.sinceDueMs ?? {};
  return [
    `${figure(run.requestsPerSecond)} requests/s, ${figure(run.recordsPerSecond)} records/s`,
    `µs per record: ${cpu.join(', ')}, sum ${figure(run.cpuSum)}`,
    `${run.generator} ${figure(run.generatorCpu)}`,
    `limit: ${run.limit}`,
    ...(p50 === undefined ? [] : [`since due p50 ${figure(p50)}, p99 ${figure(p99)}, max ${figure(max)} ms`]),
    ...(run.othersShare > 0.1 ? [`others use ${figure(100 * run.othersShare)} %: noisy`] : []),
  ].join('; ');
}
