// The binary layout in which groups of records travel to the commit script: one argument of what is to be
// decided, since Redis and Lua pay for each argument, and one of rows a table, since Lua pays for every byte of
// every string that it makes. All integers are big-endian.
//
//   group   u16 limits (+32768 when its limits let repeats pass), { 12 B digest, u32 cost, u32 max, u32 window ms, u32 granularity ms } …,
//           u16 runs
//   run     u8 table (+128 when it claims), u16 records, u32 bytes of their rows, [14 B of the event id]
//
// A run is of records of one table without a claim, or of one record with its claim. Its rows are the next of
// its table's argument.

import type { RateLimit } from '../contract/limits.js';

/** One rate limit that a group must pass. */
export type LimitCheck = {
  /** 24 hexadecimal digits: what is limited, hashed. */
  readonly digest: string;
  readonly cost: number;
  readonly limit: RateLimit;
};

/** One row on its way to a table. */
export type IngestRecord = {
  /** Index in `tables` of `clickhouse/tables.ts`. */
  readonly table: number;
  /** The encoded row, which ends with the comma before its number in the commit. */
  readonly row: string;
  /** The event id to claim (32 hexadecimal digits), or undefined when nothing is claimed. */
  readonly claim: string | undefined;
};

/** Records that are accepted or limited together: one request, or some messages of one. */
export type Group = {
  readonly limits: readonly LimitCheck[];
  /** When all its records are repeats, the limits neither refuse nor count it. */
  readonly limitsPassRepeats?: boolean;
  readonly records: readonly IngestRecord[];
  /** Upper bound of its packed size, for the bounds of commits. */
  readonly bytes: number;
};

const limitBytes = 28;
const groupBytes = 4;
/** Of a run with a claim; every record may be one. */
const runBytesMax = 21;
/** The number in the commit and the line feed. */
const rowEndBytesMax = 6;

/** Upper bound of a group's packed size in bytes. */
export function packedBytesMax(limits: readonly LimitCheck[], records: readonly IngestRecord[]): number {
  let bytes = groupBytes + limits.length * limitBytes;
  for (const record of records) bytes += runBytesMax + rowEndBytesMax + Buffer.byteLength(record.row);
  return bytes;
}

export type Packed = {
  /** Groups and their runs. */
  readonly groups: Buffer;
  /** Rows by number of their table; undefined where it has none. */
  readonly rows: readonly (Buffer | undefined)[];
};

/** Packs groups, numbering the rows from 0 in the order given. */
export function packGroups(groups: readonly Group[]): Packed {
  let bytesMax = 0;
  let decisionBytesMax = 0;
  for (const group of groups) {
    bytesMax += group.bytes;
    decisionBytesMax += groupBytes + group.limits.length * limitBytes + group.records.length * runBytesMax;
  }
  const packed = Buffer.allocUnsafe(decisionBytesMax);
  const rows: Buffer[] = [];
  const rowsAt: number[] = [];
  let at = 0;
  let rowNumber = 0;

  for (const group of groups) {
    at = packed.writeUInt16BE(group.limits.length + (group.limitsPassRepeats ? 32_768 : 0), at);
    for (const check of group.limits) {
      at += packed.write(check.digest, at, 12, 'hex');
      at = packed.writeUInt32BE(check.cost, at);
      at = packed.writeUInt32BE(check.limit.max, at);
      at = packed.writeUInt32BE(check.limit.windowMs, at);
      at = packed.writeUInt32BE(check.limit.granularityMs, at);
    }
    const runsAt = at;
    let runs = 0;
    at += 2;
    for (let first = 0; first < group.records.length; ) {
      const { table, claim } = group.records[first] as IngestRecord;
      const end = claim === undefined ? endOfRun(group.records, first) : first + 1;
      let text = '';
      for (let i = first; i < end; i++) text += `${(group.records[i] as IngestRecord).row}${rowNumber++}\n`;
      rows[table] ??= Buffer.allocUnsafe(bytesMax);
      const start = rowsAt[table] ?? 0;
      const bytes = (rows[table] as Buffer).write(text, start, 'utf8');
      rowsAt[table] = start + bytes;
      runs += 1;
      at = packed.writeUInt8(claim === undefined ? table : table + 128, at);
      at = packed.writeUInt16BE(end - first, at);
      at = packed.writeUInt32BE(bytes, at);
      if (claim !== undefined) at += packed.write(claim, at, 14, 'hex');
      first = end;
    }
    packed.writeUInt16BE(runs, runsAt);
  }
  return { groups: packed.subarray(0, at), rows: rows.map((text, table) => text.subarray(0, rowsAt[table])) };
}

function endOfRun(records: readonly IngestRecord[], first: number): number {
  const { table } = records[first] as IngestRecord;
  let end = first + 1;
  while (end < records.length && records[end]?.table === table && records[end]?.claim === undefined) end += 1;
  return end;
}
