// The floor of storing: ClickHouse alone gets the same rows as in a run of the service, in blocks of the same size, into the same table, by
// a worker's inserts.

import { connectClickHouse } from '../../src/clickhouse/client.js';
import { stampRows } from '../../src/clickhouse/stamps.js';
import { insertSegment, tokenOf } from '../../src/clickhouse/store.js';
import { markerRows } from '../../src/clickhouse/tables.js';
import { eventKind } from '../../src/ingest/event.js';
import type { Deployment } from '../deployment/deployment.js';
import { generating } from '../deployment/meter.js';
import { BenchError } from '../failure.js';
import { eventOf } from '../load/events.js';
import { measure, type Run } from '../throughput/measure.js';

/** As many concurrent inserts as a worker makes. */
const insertsAtOnce = 2;
const warmUpBlocks = 4;
const bytesMax = 2_000_000_000;
const table = 'events';

/** Rejects unless all rows are stored. */
export async function runEngine(
  deployment: Deployment,
  appId: string,
  rowsPerBlock: number,
  seconds: number,
): Promise<Run> {
  const { clickhouseUrl, database } = deployment.sluice;
  const client = connectClickHouse({ url: clickhouseUrl, database });
  const nowMs = Date.now();
  /** Makes blocks before the clock starts, since making a block costs as much as storing it. */
  const makeBlocks = (first: number, count: number) =>
    Array.from({ length: count }, (_, index) => makeBlock(appId, rowsPerBlock, first + index, nowMs));
  const insertAll = async (blocks: ReturnType<typeof makeBlocks>) => {
    const rest = [...blocks];
    const keepInserting = async () => {
      for (let block = rest.shift(); block !== undefined; block = rest.shift()) {
        const segment = { table, number: block.number } as const;
        await insertSegment(client, segment, block.bytes, tokenOf(segment, block.bytes, 0));
      }
    };
    await Promise.all(Array.from({ length: insertsAtOnce }, keepInserting));
  };
  const { url, count, stored, settle } = deployment;
  // Only ClickHouse's work is measured; the sender counts as the generator.
  const cpu = () => ({ clickhouse: deployment.cpu().clickhouse });
  try {
    const first = makeBlocks(0, warmUpBlocks);
    const secondsEach = (await generating(() => insertAll(first))).seconds / warmUpBlocks;
    const fitting = Math.floor(bytesMax / (first[0]?.bytes.length ?? 1));
    const requests = Math.max(2, Math.min(fitting, Math.round(seconds / secondsEach)));
    const blocks = makeBlocks(warmUpBlocks, requests);
    const before = { events: warmUpBlocks * rowsPerBlock };
    const load = async () => ({
      ...(await generating(() => insertAll(blocks))),
      requests,
      acknowledged: { events: requests * rowsPerBlock },
    });
    const subject = { url, count, stored, settle, cpu };
    return (await measure({ subject, appId, before, load })).run;
  } finally {
    await client.close();
  }
}

/** A segment number modulo 64 is its shard; the deployment has no shard with this number. */
const shardOfNone = 63n;
const rowsPerCommit = 1_000;

/** A segment as the service makes it, byte for byte: the bench's events, encoded and stamped. `index` distinguishes several segments. */
function makeBlock(appId: string, rows: number, index: number, nowMs: number) {
  const base = BigInt(nowMs) * 1000n + BigInt(index) * 64n;
  const number = String(base - (base % 64n) + shardOfNone);
  const received = `"${(nowMs / 1000).toFixed(3)}"]\n`;
  let lines = `,${number},0,${received}${markerRows.events}\n`;
  for (let row = 0; row < rows; row += 1) {
    const [commit, inCommit] = [Math.floor(row / rowsPerCommit), row % rowsPerCommit];
    if (inCommit === 0) lines += `,${number},${commit + 1},${received}`;
    lines += `${rowOf(appId, index * rows + row, nowMs)}${inCommit}\n`;
  }
  return { number, bytes: stampRows(Buffer.from(lines)).bytes };
}

/** The row of an event of the bench, as the service encodes it. */
function rowOf(appId: string, number: number, nowMs: number): string {
  const context = { appId, surrogates: false, nowMs, allowedIdentities: new Set<string>() };
  const checked = eventKind.check(eventOf(number), context);
  if ('code' in checked) throw new BenchError(`an event of the bench is refused: ${checked.message}`);
  return eventKind.encode(appId, checked).row;
}
