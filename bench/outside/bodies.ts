// The bodies that a load sends: those of a way, or records from a file.

import { readFileSync } from 'node:fs';
import { gunzipSync, gzipSync } from 'node:zlib';
import { BenchError } from '../failure.js';
import type { Way } from '../throughput/ways.js';

export type BodyOptions = {
  readonly way: Way;
  /** In turn. */
  readonly appIds: readonly string[];
  /** Of the idempotency keys; no two threads and no two runs have the same. */
  readonly keyPrefix: string;
  /** Records to send instead of the way's own. */
  readonly payloads: readonly object[] | undefined;
  readonly gzip: boolean;
};

/** So many are made at once. Bodies that may repeat are made once. */
const madeAtOnce = 1_000;

/** Settles with the next body, for ever. */
export function bodySource({ way, appIds, keyPrefix, payloads, gzip }: BodyOptions): () => Buffer {
  let first = 0;
  let made: Buffer[] = [];
  let at = 0;
  const eventsEach = way.records === 'by answer' ? 1 : (Object.values(way.records)[0] ?? 1);
  const make = (): Buffer[] => {
    const each = Math.max(1, Math.ceil(madeAtOnce / eventsEach / appIds.length));
    const lists = appIds.map((appId) =>
      payloads === undefined
        ? way.bodies(each, { appId, first, keyPrefix })
        : payloadBodies(payloads, each, eventsEach, { appId, first }),
    );
    first += each * eventsEach;
    const bodies = Array.from({ length: each }, (_, i) => lists.flatMap((list) => list[i] ?? [])).flat();
    return gzip ? bodies.map((body) => gzipSync(body)) : bodies;
  };
  return () => {
    if (at === made.length) {
      if (made.length === 0 || way.different || payloads !== undefined) made = make();
      at = 0;
    }
    at += 1;
    return made[at - 1] as Buffer;
  };
}

function payloadBodies(
  payloads: readonly object[],
  count: number,
  eventsEach: number,
  { appId, first }: { readonly appId: string; readonly first: number },
): Buffer[] {
  const recordAt = (number: number) => payloads[number % payloads.length] as object;
  return Array.from({ length: count }, (_, i) => {
    const from = first + i * eventsEach;
    const events = Array.from({ length: eventsEach }, (_, j) => recordAt(from + j));
    const body = eventsEach === 1 ? { ...recordAt(from), app_id: appId } : { app_id: appId, events };
    return Buffer.from(JSON.stringify(body));
  });
}

/** Reads records, one JSON object a line, from a file that may be gzipped. Throws BenchError, which names the line. */
export function readPayloads(path: string): object[] {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = gunzipSync(bytes);
  } catch (error) {
    throw new BenchError(`--payloads ${path} cannot be read: ${(error as Error).message}`);
  }
  const records: object[] = [];
  for (const [index, line] of bytes.toString('utf8').split('\n').entries()) {
    if (line.trim() === '') continue;
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch {
      value = undefined;
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new BenchError(`--payloads ${path}: line ${index + 1} is no JSON object`);
    }
    records.push(value);
  }
  if (records.length === 0) throw new BenchError(`--payloads ${path} has no records`);
  return records;
}
