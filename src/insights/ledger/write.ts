// Writes the ledger from Redis to ClickHouse, minute by minute. A minute is finished when its time has passed and none of its segments is
// open; its entries then never change. They are written, then removed from Redis. After a crash in between, the same rows are written
// again.

import { inBatches } from '../../batches.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { type LedgerRow, readTermTotals, voidSince, writeLedger } from '../../clickhouse/ledger-table.js';
import { ledger } from '../../contract/limits.js';
import type { CrashPoint } from '../../crash-point.js';
import type { Redis } from '../../redis/client.js';
import { hashPieces } from '../../redis/hash-pieces.js';
import { shardKeys, shardOf } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { readTime } from '../../registry/registry.js';
import { ledgerWrites } from '../../tuning.js';

export type LedgerOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly shards: number;
  /** The epoch of the deployment. Nothing is removed from a Redis that has another epoch or none. */
  readonly epoch: string;
  readonly crash: CrashPoint;
};

/** Writes the finished minutes of all shards. May be repeated, and called by several processes at once. */
export async function writeMinutes(options: LedgerOptions): Promise<void> {
  const failures: unknown[] = [];
  // On a cluster, one shard may fail alone.
  for (let shard = 0; shard < options.shards; shard++)
    await writeShard(options, shard).catch((error) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

async function writeShard(
  { redis, clickhouse, shards, epoch, crash }: LedgerOptions,
  shard: number,
): Promise<void> {
  await beginShard(redis, clickhouse, shard, shards);
  for (const minute of await readFinishedMinutes(redis, shard)) {
    const logged = await readLog(redis, shard, minute);
    const entries = await readEntries(redis, shard, minute);
    for (const some of inBatches([...logged.rows, ...entries.map(rowOf(minute))], ledgerWrites.rowsAtOnceMax))
      await writeLedger(clickhouse, some);
    crash('ledger_written');
    const keys = [
      shardKeys.state(shard),
      shardKeys.ledgerMinutes(shard),
      shardKeys.ledger(shard, minute),
      shardKeys.ledgerSums(shard, dayOf(minute)),
      shardKeys.ledgerTotals(shard),
      shardKeys.ledgerLog(shard, minute),
    ];
    const ofMinute = [epoch, minute, ledger.sumsKeptMs];
    for (const some of inBatches(entries, ledgerWrites.fieldsAtOnceMax))
      await runScript(redis, scripts.booked, keys, [...ofMinute, 0, 0, ...some.flat()]);
    await runScript(redis, scripts.booked, keys, [...ofMinute, logged.bytes, logged.accepted]);
  }
}

/** What Redis has of a minute at present. The minute is written once it is finished. */
export async function readMinute(redis: Redis, shard: number, minute: number): Promise<LedgerRow[]> {
  const [{ rows }, entries] = [await readLog(redis, shard, minute), await readEntries(redis, shard, minute)];
  return [...rows, ...entries.map(rowOf(minute))];
}

type Logged = { readonly rows: readonly LedgerRow[]; readonly bytes: number; readonly accepted: number };

/** Reads the log of a minute in pieces, and adds it up. */
async function readLog(redis: Redis, shard: number, minute: number): Promise<Logged> {
  const key = shardKeys.ledgerLog(shard, minute);
  const sums = new Map<string, number>();
  let [bytes, accepted, header, rest] = [0, 0, '', ''];
  for (;;) {
    const piece = await redis.getrange(key, bytes, bytes + ledgerWrites.logBytesAtOnceMax - 1);
    if (piece === '') break;
    bytes += piece.length;
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (!isDigit(line)) {
        header = line;
        continue;
      }
      const [appId = '', count] = line.split(' ');
      const records = Number(count);
      if (header.endsWith(' accepted')) accepted += records;
      const field = `${appId} ${header}`;
      sums.set(field, (sums.get(field) ?? 0) + records);
    }
  }
  const rows = Array.from(sums, ([field, records]) => rowOf(minute)([field, String(records)]));
  return { rows, bytes, accepted };
}

function isDigit(line: string): boolean {
  const code = line.charCodeAt(0);
  return code >= 0x30 && code <= 0x39;
}

/** Prepares a shard whose state is new in this Redis. What was counted before and not written is lost, so that time becomes void. */
async function beginShard(
  redis: Redis,
  clickhouse: ClickHouseClient,
  shard: number,
  shards: number,
): Promise<void> {
  const state = shardKeys.state(shard);
  const [epoch, since] = await redis.hmget(state, 'epoch', 'ledger_since');
  if (epoch == null || since != null) return;
  const nowMs = await readTime(redis);
  const reason = 'Redis was emptied, another one took over, or the ledger began';
  await voidSince(clickhouse, { to: Math.floor(nowMs / 60_000), reason });
  const totals = (await readTermTotals(clickhouse)).filter(({ app_id }) => shardOf(app_id, shards) === shard);
  for (const some of inBatches(totals, ledgerWrites.fieldsAtOnceMax))
    await redis.hset(
      shardKeys.ledgerTotals(shard),
      ...some.flatMap(({ app_id, kind, term, detail, records }) => [
        [app_id, kind || '-', term, detail].join(' ').trim(),
        records,
      ]),
    );
  await redis.hset(state, 'ledger_since', nowMs);
}

/** The finished minutes, from the oldest. */
async function readFinishedMinutes(redis: Redis, shard: number): Promise<number[]> {
  const minutes = (await redis.smembers(shardKeys.ledgerMinutes(shard))).map(Number);
  if (minutes.length === 0) return [];
  const nowMs = await readTime(redis);
  const state = await redis.hgetall(shardKeys.state(shard));
  const open = Object.entries(state)
    .filter(([field, value]) => field.startsWith('open.') && value !== '')
    .map(([, value]) => minuteOfSegment(value.split(' ', 1)[0] as string));
  const end = Math.min(Math.floor((nowMs - ledgerWrites.afterMs) / 60_000), ...open);
  return minutes.filter((minute) => minute < end).sort((a, b) => a - b);
}

export function minuteOfSegment(number: string): number {
  return Number(BigInt(number) / 60_000_000n);
}

/** The lowest number that a segment of a minute can have. */
export function firstSegmentOf(minute: number): string {
  return (BigInt(minute) * 60_000_000n).toString();
}

export function dayOf(minute: number): number {
  return Math.floor(minute / 1_440);
}

/** The fields of a minute's hash. */
async function readEntries(redis: Redis, shard: number, minute: number): Promise<[string, string][]> {
  const entries = new Map<string, string>();
  const key = shardKeys.ledger(shard, minute);
  for await (const piece of hashPieces(redis, key, ledgerWrites.fieldsAtOnceMax))
    for (const [field, value] of piece) entries.set(field, value);
  return [...entries];
}

function rowOf(minute: number): (entry: readonly [field: string, value: string]) => LedgerRow {
  return ([field, value]) => {
    const [app_id = '', kind = '-', term = '', ...detail] = field.split(' ');
    const records = Number(value);
    return { app_id, minute, kind: kind === '-' ? '' : kind, term, detail: detail.join(' ').trim(), records };
  };
}
