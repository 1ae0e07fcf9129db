// The request bodies of a load: a way's own, or records from a file.

import { readFileSync } from 'node:fs';
import { gunzipSync, gzipSync } from 'node:zlib';
import { sumOf } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import type { Way } from '../throughput/ways.js';
import type { EventOptions } from './events.js';

export type BodyOptions = {
  readonly way: Way;
  /** Requests take them in turn. */
  readonly appIds: readonly string[];
  /** Of the idempotency keys; each thread of each run has its own. */
  readonly keyPrefix: string;
  /** Records to send instead of the way's own. */
  readonly payloads?: readonly object[] | undefined;
  readonly gzip?: boolean;
  /** How many bodies to make before the first is taken. */
  readonly ahead?: number;
};

/** Records per batch of bodies. */
const batchRecords = 1_000;
/** Bodies may repeat after this many: with fewer users, some would reach their limits. */
const repeatedAfter = { bodies: 128_000, bytes: 40_000_000 };
/** Bodies made ahead must fit into memory. */
const aheadBytesMax = 1_500_000_000;

/** Returns a function that gives the next body, without end. */
export function bodySource(options: BodyOptions): () => Buffer {
  const { way, appIds, keyPrefix, payloads, gzip = false, ahead = 0 } = options;
  const each = Math.max(1, Math.ceil(batchRecords / sumOf(way.records) / appIds.length));
  const repeats = !way.different && payloads === undefined;
  let first = 0;
  let built: Buffer[] = [];
  let at = 0;
  const make = () => {
    const lists = appIds.map((appId) =>
      payloads === undefined
        ? way.bodies(each, { appId, first, keyPrefix })
        : payloadBodies(payloads, each, numbersEach(way), { appId, first, keyPrefix }),
    );
    first += each * numbersEach(way);
    for (let i = 0; i < each; i += 1) {
      for (const list of lists) {
        const body = list[i];
        if (body !== undefined) built.push(gzip ? gzipSync(body) : body);
      }
    }
  };
  make();
  const bytes = built[0]?.length ?? 1;
  const bodiesMax = Math.max(batchRecords, Math.min(repeatedAfter.bodies, repeatedAfter.bytes / bytes));
  while (built.length < Math.min(ahead, repeats ? bodiesMax : aheadBytesMax / bytes)) make();
  return () => {
    if (at === built.length) {
      if (!repeats) built = [];
      if (!repeats || built.length >= bodiesMax) at = 0;
      if (at === built.length) make();
    }
    at += 1;
    return built[at - 1] as Buffer;
  };
}

/** Records are numbered; a request takes so many numbers. */
export function numbersEach({ path, records }: Pick<Way, 'path' | 'records'>): number {
  return path === '/api/track' ? (records.events ?? 1) : 1;
}

/** The records of a file, over and over. Their keys get a suffix: the service would drop a repeated key as already stored. */
function payloadBodies(
  payloads: readonly object[],
  count: number,
  eventsEach: number,
  { appId, first, keyPrefix }: Required<EventOptions>,
): Buffer[] {
  const recordAt = (number: number) => {
    const record = payloads[number % payloads.length] as { idempotency_key?: unknown };
    if (typeof record.idempotency_key !== 'string') return record;
    const round = Math.floor(number / payloads.length);
    return { ...record, idempotency_key: `${record.idempotency_key}-${keyPrefix}-${round}` };
  };
  return Array.from({ length: count }, (_, i) => {
    const from = first + i * eventsEach;
    const events = Array.from({ length: eventsEach }, (_, j) => recordAt(from + j));
    const body = eventsEach === 1 ? { ...events[0], app_id: appId } : { app_id: appId, events };
    return Buffer.from(JSON.stringify(body));
  });
}

/** Reads a file of one JSON object per line, gzipped or not. Throws BenchError, which names the line. */
export function readPayloads(path: string): object[] {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = gunzipSync(bytes);
  } catch (error) {
    throw new BenchError(`--payloads ${path} cannot be read: ${(error as Error).message}`);
  }
  const records = bytes
    .toString('utf8')
    .split('\n')
    .flatMap((line, index) => {
      if (line.trim() === '') return [];
      const value = parsed(line);
      if (typeof value === 'object' && value !== null && !Array.isArray(value)) return [value];
      throw new BenchError(`--payloads ${path}: line ${index + 1} is no JSON object`);
    });
  if (records.length === 0) throw new BenchError(`--payloads ${path} has no records`);
  return records;
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
