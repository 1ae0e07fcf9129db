// The request bodies of a load: those of a way, or records from a file.

import { readFileSync } from 'node:fs';
import { gunzipSync, gzipSync } from 'node:zlib';
import { sumOf } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import type { Way } from '../throughput/ways.js';
import type { MakeRequest } from './events.js';

export type BodyOptions = {
  readonly way: Way;
  /** The environments, which requests use in turn. */
  readonly appIds: readonly string[];
  /** The prefix of idempotency keys; each thread of each run has its own. */
  readonly keyPrefix: string;
  /** Whether users have the prefix in their names, so that no other load has the same users. */
  readonly ownUsers?: boolean;
  /** Records to send instead of those of the way. */
  readonly payloads?: readonly object[];
  readonly gzip?: boolean;
  /** How many bodies to make before the first is taken. */
  readonly ahead?: number;
};

/** About how many records one batch of bodies has. */
const batchRecords = 1_000;
/** Bodies may repeat after this many. With fewer, some users would reach their limits. */
const repeatedAfter = { bodies: 128_000, bytes: 40_000_000 };
/** Bodies made in advance must fit into memory. */
const aheadBytesMax = 1_500_000_000;

/** Returns a function that returns the next body, endlessly. */
export function bodySource(options: BodyOptions): () => Buffer {
  const { way, appIds, keyPrefix, payloads, ownUsers = false, gzip = false, ahead = 0 } = options;
  const each = Math.max(1, Math.ceil(batchRecords / sumOf(way.records) / appIds.length));
  const repeats = !way.different && payloads === undefined;
  const request = payloads === undefined ? way.request : payloadOf(payloads, numbersEach(way));
  let number = 0;
  let built: Buffer[] = [];
  let at = 0;
  const make = () => {
    for (let i = 0; i < each; i += 1, number += numbersEach(way)) {
      const made = request(number, repeats ? undefined : keyPrefix, ownUsers ? keyPrefix : undefined);
      for (const appId of appIds) {
        const body = Buffer.from(JSON.stringify({ [way.environmentField ?? 'app_id']: appId, ...made }));
        built.push(gzip ? gzipSync(body) : body);
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

/** Records are numbered; this is how many numbers one request takes. */
export function numbersEach({ path, records }: Pick<Way, 'path' | 'records'>): number {
  return ['/api/track', '/v1/batch'].includes(path) ? (records.events ?? 1) : 1;
}

/** Sends the records of a file, over and over. Their keys get a suffix, since the service would drop a repeated key as already stored. */
function payloadOf(payloads: readonly object[], events: number): MakeRequest {
  const recordAt = (number: number, keyPrefix?: string): object => {
    const found: { app_id?: unknown; idempotency_key?: unknown } = payloads[number % payloads.length] ?? {};
    const { app_id: _, idempotency_key: key, ...record } = found;
    const round = Math.floor(number / payloads.length);
    return typeof key === 'string'
      ? { ...record, idempotency_key: `${key}-${keyPrefix}-${round}` }
      : { ...record, idempotency_key: key };
  };
  return (number, keyPrefix) =>
    events === 1
      ? recordAt(number, keyPrefix)
      : { events: Array.from({ length: events }, (_, index) => recordAt(number + index, keyPrefix)) };
}

/** Reads a file with one JSON object per line, gzipped or not. Throws BenchError, which names the line. */
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
      throw new BenchError(`--payloads ${path}: line ${index + 1} is not a JSON object`);
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
