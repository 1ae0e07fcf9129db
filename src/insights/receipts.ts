// Receipts: what has happened to the records with given idempotency keys of one environment. Redis says which keys it remembers and where
// their records can be. Records of the last minutes are found by their rows, all others by ClickHouse's index of keys. Nothing is stored,
// and no answer depends on another environment. The index says what was stored: it does not know that a row was removed by hand.
//
// Redis is asked first: records that it calls stored are in ClickHouse by then, and remain known there even if they are deleted in the
// meantime.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { codeOfFault, faultCodes } from '../clickhouse/client.js';
import { lookUpIndexed } from '../clickhouse/key-look-up.js';
import { findFailedRows, findStoredRows, type Ids, idBytes } from '../clickhouse/keyed-rows.js';
import { keyBytes } from '../clickhouse/row-keys.js';
import type { Receipt } from '../contract/answers.js';
import { StateNotLoaded, Unavailable } from '../contract/errors.js';
import { receipts } from '../contract/limits.js';
import { asUuid, eventIdOfKey } from '../ingest/event-id.js';
import type { Redis } from '../redis/client.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import type { LiveEnvironment } from '../registry/environments.js';
import { receiptReads } from '../tuning.js';

export type ReceiptOptions = {
  readonly redis: Redis;
  /** The server that has the environment's rows. */
  readonly clickhouse: ClickHouseClient;
  readonly epoch: string;
};

/** The limit has no room for these keys until so many ms have passed. */
export type ReceiptsLimited = { readonly waitMs: number };

/** How many bytes of an id a claim has. */
const claimedBytes = 13;

/** The index of keys does not exist yet; workers have to make it first. */
class NotIndexed extends Unavailable {
  override readonly toCallers = 'Nothing was stored: the index of idempotency keys is being made; ask again.';

  constructor() {
    super('receipts were asked for, and the index of keys is being made');
  }
}

/**
 * Finds the receipts of keys, in their order; keys may repeat. Rejects with a Fault or with the stores' errors: nothing is known then, and
 * the same call may be made again.
 */
export async function findReceipts(
  options: ReceiptOptions,
  { appId, shard }: Pick<LiveEnvironment, 'appId' | 'shard'>,
  keys: readonly string[],
): Promise<Receipt[] | ReceiptsLimited> {
  const { clickhouse } = options;
  const idOf = new Map(keys.map((key) => [key, eventIdOfKey(appId, key, 'shared')]));
  const ids = [...new Set(idOf.values())];
  const found = await findClaims(options, shard, appId, ids);
  if ('waitMs' in found) return found;
  const claims: Claims = found;

  // Recent records are found by their rows, most of them without the index.
  const recent = ids.filter((_, i) => claims.ageOf(i) >= 0 && claims.ageOf(i) <= claims.indexedAge);
  const [stored, failed] = await Promise.all([
    recent.length === 0
      ? new Map<string, bigint>()
      : bounded(findStoredRows(clickhouse, appId, idsOf(recent), claims.above, claims.to)),
    bounded(findFailedRows(clickhouse, appId, idsOf(ids))),
  ]);
  const others = ids.filter((id) => !stored.has(id));
  const index =
    others.length === 0
      ? undefined
      : await lookUpIndexed(clickhouse, shard, idsOf(others, keyBytes), receiptReads.clickhouseMsMax);
  const indexOf = new Map(others.map((id, i) => [id, i]));

  const receiptOfId = new Map(ids.map((id, i) => [id, receiptOf(id, claims.ageOf(i))]));
  return keys.map((key) => ({
    idempotency_key: key,
    ...(receiptOfId.get(idOf.get(key) as string) as Status),
  }));

  function receiptOf(id: string, age: number): Status {
    if (failed.has(id)) return { status: 'waiting' };
    const found = stored.get(id);
    if (found !== undefined || index === undefined) return storedIn(found as bigint, id);
    const position = indexOf.get(id) as number;
    if (index.isGone(position)) return { status: 'deleted' };
    const owner = index.ownerOf(position);
    if (owner !== undefined) return storedIn(owner, id);
    if (index.indexedTo < claims.indexedTo) throw new NotIndexed();
    return { status: age >= 0 && age <= claims.settledAge ? 'waiting' : 'unknown' };
  }
}

type Status = Omit<Receipt, 'idempotency_key'>;

type Claims = {
  /** The age of an id's claim in minutes; -1 if Redis has none. */
  ageOf(index: number): number;
  /** Records whose claim is older than this are stored, unless they were deleted or lost. In minutes. */
  readonly settledAge: number;
  /** Keys whose claim is older than this are in the index. In minutes. */
  readonly indexedAge: number;
  /** The segments of the other claims are above this number. */
  readonly above: bigint;
  readonly to: bigint;
  /** The answers of the index count only if it has the keys of all segments up to this number. */
  readonly indexedTo: bigint;
};

async function findClaims(
  { redis, epoch }: ReceiptOptions,
  shard: number,
  appId: string,
  ids: readonly string[],
): Promise<Claims | ReceiptsLimited> {
  const answer = await runScript(
    redis,
    scripts.findClaims,
    [
      shardKeys.state(shard),
      shardKeys.segments(shard),
      shardKeys.claims(shard),
      shardKeys.claimMinutes(shard),
      shardKeys.receipts(shard, appId),
    ],
    [epoch, idsOf(ids, claimedBytes).bytes, receipts.keysPerSecondMax],
  );
  if (answer === null) throw new StateNotLoaded();
  if (typeof answer === 'number') return { waitMs: answer };
  const [ages, settledAge, indexedAge, above, to, indexedTo] = answer as Six<string>;
  return {
    ageOf: (index) => Number.parseInt(ages.slice(4 * index, 4 * index + 4), 16) - 1,
    settledAge: Number(settledAge),
    indexedAge: Number(indexedAge),
    above: BigInt(above),
    to: BigInt(to),
    indexedTo: BigInt(indexedTo),
  };
}

type Six<T> = [T, T, T, T, T, T];

/** The first bytes of ids. */
function idsOf(ids: readonly string[], bytesOfEach: number = idBytes): Ids {
  const bytes = Buffer.allocUnsafe(bytesOfEach * ids.length);
  for (const [i, id] of ids.entries()) bytes.write(id, bytesOfEach * i, bytesOfEach, 'hex');
  return { bytes, count: ids.length };
}

/**
 * Rejects with NotIndexed if more rows would have to be read than a request may cost. Workers build the index now that receipts are wanted.
 */
async function bounded<Found>(found: Promise<Found>): Promise<Found> {
  return found.catch((error: unknown) => {
    throw codeOfFault(error) === faultCodes.tooManyRows ? new NotIndexed() : error;
  });
}

/** A segment's number is the time at which it was opened, in microseconds. */
function storedIn(segment: bigint, id: string): Status {
  return {
    status: 'stored',
    event_id: asUuid(id),
    segment: String(segment),
    accepted_at: new Date(Number(segment / 1000n)).toISOString(),
  };
}
