// Makes segments as the service does, byte for byte: the bench's events, encoded by the service, in blocks with the stamps that
// the commit script would add. Redis alone gets these; ClickHouse alone gets them with the stamps in each row.

import { markerRows } from '../../src/clickhouse/tables.js';
import { eventKind } from '../../src/ingest/event.js';
import { BenchError } from '../failure.js';
import { eventOf } from '../load/events.js';

type MadeSegment = {
  readonly number: string;
  /** What each commit appends; the first begins with the marker row. */
  readonly commits: readonly string[];
};

/** A segment number modulo 64 is the shard; no shard has this number. */
const shardOfNone = 63n;

/** Makes one segment of `rows` events, `rowsPerCommit` per commit. `index` numbers several segments. */
export function makeSegment(
  appId: string,
  rows: number,
  rowsPerCommit: number,
  index: number,
  nowMs: number,
): MadeSegment {
  const base = BigInt(nowMs) * 1000n + BigInt(index) * 64n;
  const number = String(base - (base % 64n) + shardOfNone);
  const received = `"${(nowMs / 1000).toFixed(3)}"]\n`;
  const commits: string[] = [];
  for (let first = 0; first < rows; first += rowsPerCommit) {
    const stamps = `,${number},${commits.length + 1},${received}`;
    const count = Math.min(rowsPerCommit, rows - first);
    const lines = Array.from(
      { length: count },
      (_, i) => `${rowOf(appId, index * rows + first + i, nowMs)}${i}\n`,
    );
    const marker = first === 0 ? `,${number},0,${received}${markerRows.events}\n` : '';
    commits.push(marker + stamps + lines.join(''));
  }
  return { number, commits };
}

function rowOf(appId: string, number: number, nowMs: number): string {
  const context = { surrogates: false, nowMs, allowedIdentities: new Set<string>() };
  const checked = eventKind.check(eventOf(number, { keyPrefix: undefined }), context);
  if ('code' in checked) throw new BenchError(`an event of the bench is refused: ${checked.message}`);
  return eventKind.encode(appId, checked).row;
}
