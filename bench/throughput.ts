// One run of one way: warm-up, then as fast as it is answered for about as long as was told, or at a fixed rate.

import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { sendClosedLoop } from './closed-loop.js';
import { BenchError } from './failure.js';
import { type LatencyFigures, latencyFigures } from './latency-figures.js';
import { type Loaded, measure, type Run, type Subject } from './measure.js';
import { newLatencies, recordLatency, startOpenLoop } from './open-loop.js';
import type { Progress } from './progress.js';
import { mixedRequests } from './records.js';
import { plus, type Records, recordTables, sumOf, untilCounted } from './stored.js';
import type { Way } from './ways.js';

export type ThroughputRun = Run & {
  /** Of the mixture: requests that met a limit, and those whose event was stored before. */
  readonly limited?: number;
  readonly repeats?: number;
  /** At a fixed rate: of the acknowledgements. */
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
  /** Requests a second, instead of as fast as they are answered. */
  readonly rate?: number | undefined;
  readonly stallMs?: number;
  readonly progress: Progress;
};

/** How fast it is, is found with as many requests a connection. */
const firstRequestsEach = 4;
/** Bodies that may be repeated are made so many, of as many users, and sent over and over. */
const repeatedBodies = { requests: 128_000, bytes: 40_000_000 };
/** Bodies that are all different are in memory together. */
const bodyBytesMax = 1_500_000_000;
const openConnections = 256;

export async function runThroughput(options: ThroughputOptions): Promise<ThroughputRun> {
  const { subject, way, appId, seconds, progress } = options;
  const { ids: _, ...already } = await subject.stored(appId);
  let before: Records = already;
  const send = async (requests: number, watched: boolean): Promise<Sent> => {
    const prepared = prepare(options, requests);
    return sendPrepared(options, prepared, watched);
  };

  // Twice: the first requests of a process are slow, and how many fit the time is not known before.
  let rate = options.rate ?? 0;
  for (const requests of [firstRequestsEach * options.connections, 0]) {
    const count = requests > 0 ? requests : rate * options.warmUpSeconds;
    const sent = await send(wholeRounds(count, options.connections), false);
    rate = options.rate ?? sent.requests / sent.seconds;
    before = plus(before, sent.acknowledged);
  }
  await untilCounted(() => subject.count(appId), sumOf(before), options.stallMs);

  const requests = wholeRounds(limitBytes(way, rate * seconds), options.connections);
  const prepared = prepare(options, requests);
  const watch = progress.watch(
    way.name,
    () => `${prepared.answers()} of ${prepared.requests} requests answered`,
  );
  try {
    const { run, loaded } = await measure({
      subject,
      redis: options.redis,
      appId,
      before,
      requests: prepared.requests,
      ...(options.stallMs === undefined ? {} : { stallMs: options.stallMs }),
      load: () => sendPrepared(options, prepared, true),
    });
    const { limited, repeats, latency } = loaded;
    return {
      ...run,
      ...(limited === undefined ? {} : { limited, repeats: repeats ?? 0 }),
      ...(latency === undefined ? {} : { latency }),
    };
  } finally {
    watch.end();
  }
}

type Prepared = {
  readonly requests: number;
  /** Of each connection. */
  readonly bodies: readonly (readonly Buffer[])[];
  /** Of the mixture: the keys of the requests, of each connection. */
  readonly keys: readonly (readonly string[])[];
  readonly answers: () => number;
  readonly answered: (count: number) => void;
};

type Sent = Loaded & {
  readonly requests: number;
  readonly limited?: number;
  readonly repeats?: number;
  readonly latency?: LatencyFigures;
};

/** Makes the bodies of so many requests; no other call makes the same where they have to be different. */
function prepare({ way, appId, connections }: ThroughputOptions, requests: number): Prepared {
  const each = requests / connections;
  const keyPrefix = randomBytes(6).toString('hex');
  const size = sizeOf(way);
  const repeated = Math.min(repeatedBodies.requests, repeatedBodies.bytes / size);
  const made = way.different ? each : Math.min(each, Math.ceil(repeated / connections));
  const eventsEach = way.records === 'by answer' ? 1 : sumOf(way.records);
  const lists = Array.from({ length: connections }, (_, connection) => {
    const options = { appId, keyPrefix, first: connection * made * eventsEach };
    if (way.records === 'by answer') return mixedRequests(made, options);
    return way.bodies(made, options).map((body) => ({ body, key: '' }));
  });
  let answers = 0;
  return {
    requests,
    bodies: lists.map((list) => list.map(({ body }) => body)),
    keys: way.records === 'by answer' ? lists.map((list) => list.map(({ key }) => key)) : [],
    answers: () => answers,
    answered: (count) => {
      answers = count;
    },
  };
}

async function sendPrepared(
  options: ThroughputOptions,
  prepared: Prepared,
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

async function sendAtRate(options: ThroughputOptions, rate: number, prepared: Prepared): Promise<Sent> {
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
      bodies: interleave(prepared.bodies),
      ratePerSecond: rate,
      requests,
      connections: openConnections,
    },
    (answered) => {
      recordLatency(latencies, answered);
      prepared.answered(latencies.sinceSent.count);
    },
  );
  const { seconds, generatorCpu } = await load.ended;
  const acknowledged = times(way.records, requests);
  return { requests, seconds, generatorCpu, acknowledged, latency: latencyFigures(latencies) };
}

/** What the statuses of the mixture say: each key that was acknowledged is stored once. */
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

/** The bodies of all connections in one list, one of each in turn. */
function interleave(bodies: readonly (readonly Buffer[])[]): Buffer[] {
  const length = Math.max(...bodies.map((list) => list.length));
  return Array.from({ length }, (_, i) => bodies.flatMap((list) => list[i] ?? [])).flat();
}

/** Bytes of one body. */
function sizeOf(way: Way): number {
  if (way.records === 'by answer') return 300;
  return way.bodies(1, { appId: '1234567890', keyPrefix: 'size', first: 0 })[0]?.length ?? 1;
}

function limitBytes(way: Way, requests: number): number {
  return way.different ? Math.min(requests, bodyBytesMax / sizeOf(way)) : requests;
}

/** As many requests that every connection sends the same number. */
function wholeRounds(requests: number, connections: number): number {
  return Math.max(1, Math.round(requests / connections)) * connections;
}
