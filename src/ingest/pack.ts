// The binary layout in which groups of records travel to the commit script: one argument of what is to be
// decided, since Redis and Lua pay for each argument, and one of rows a table, since Lua pays for every byte of
// every string that it makes. All integers are big-endian. What the script has to look up comes first, so that
// it asks for all of it at once.
//
//   u16 logs,   { 12 B digest of what is limited, u32 window ms, u32 granularity ms } …
//   u16 claims, { 14 B of the event id } …
//   groups:
//     u16 limits (+32768 when its limits let repeats pass), { u16 log from 0, u32 cost, u32 max } …,
//     u16 runs, { u8 table (+128 when it takes the next claim), u16 records, u32 bytes of their rows } …
//
// A run is of records of one table without a claim, or of one record with its claim. Its rows are the next of
// its table's argument.

import type { RateLimit } from '../contract/limits.js';

/** One rate limit that a group must pass. */
export type LimitCheck = {
  /** 24 hexadecimal digits: what is limited, hashed. Wherever it occurs, window and granularity are the same. */
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

/** Records in their order, as far as packing looks at them. */
export type Records = {
  readonly length: number;
  /** Upper bound of the bytes that `write` writes for all of them. */
  readonly rowBytesMax: number;
  /** Index in `tables` of `clickhouse/tables.ts`. */
  tableOf(index: number): number;
  /** The event id to claim (32 hexadecimal digits), or undefined when nothing is claimed. */
  claimOf(index: number): string | undefined;
  /**
   * Writes the rows of some records one after another, each ended by its number in the commit and a line feed;
   * answers where they end.
   */
  write(into: Buffer, at: number, first: number, end: number, firstNumber: number): number;
};

/** Records that are accepted or limited together: one request, or some messages of one. */
export type Group = {
  readonly limits: readonly LimitCheck[];
  /** When all its records are repeats, the limits neither refuse nor count it. */
  readonly limitsPassRepeats?: boolean;
  readonly records: Records;
  /** Upper bound of its packed size, for the bounds of commits. */
  readonly bytes: number;
};

/** Of the log and of the reference to it. */
const limitBytesMax = 20 + 10;
const groupBytes = 4;
const claimBytes = 14;
/** Of a run with a claim; every record may be one. */
const runBytesMax = 7 + claimBytes;
/** Of the counts of logs and claims. */
const headBytes = 4;
/** The number in the commit and the line feed. */
const rowEndBytesMax = 6;

/** Upper bound of a group's packed size in bytes. */
export function packedBytesMax(limits: readonly LimitCheck[], records: Records): number {
  return groupBytes + limits.length * limitBytesMax + records.length * runBytesMax + records.rowBytesMax;
}

/** Upper bound of a record's part of its group's packed size. */
export function recordBytesMax({ row }: IngestRecord): number {
  return runBytesMax + rowEndBytesMax + Buffer.byteLength(row);
}

/** Records whose rows are encoded. */
export function encodedRecords(records: readonly IngestRecord[]): Records {
  let rowBytesMax = 0;
  for (const { row } of records) rowBytesMax += rowEndBytesMax + Buffer.byteLength(row);
  return {
    length: records.length,
    rowBytesMax,
    tableOf: (index) => (records[index] as IngestRecord).table,
    claimOf: (index) => (records[index] as IngestRecord).claim,
    write: (into, at, first, end, firstNumber) => {
      let text = '';
      for (let i = first; i < end; i++)
        text += `${(records[i] as IngestRecord).row}${firstNumber + i - first}\n`;
      return at + into.write(text, at, 'utf8');
    },
  };
}

export type Packed = {
  /** What is to be decided. */
  readonly decisions: Buffer;
  /** Rows by number of their table; undefined where it has none. */
  readonly rows: readonly (Buffer | undefined)[];
};

/** Packs groups, numbering the rows from 0 in the order given. */
export function packGroups(groups: readonly Group[]): Packed {
  let bytesMax = 0;
  let decisionBytesMax = headBytes;
  for (const group of groups) {
    bytesMax += group.bytes;
    decisionBytesMax += groupBytes + group.limits.length * limitBytesMax + group.records.length * runBytesMax;
  }
  const packed = Buffer.allocUnsafe(decisionBytesMax);
  const rows: Buffer[] = [];
  const rowsAt: number[] = [];
  let rowNumber = 0;

  const { logs, end } = writeLogs(packed, 0, groups);
  let at = writeClaims(packed, end, groups);
  for (const group of groups) {
    at = packed.writeUInt16BE(group.limits.length + (group.limitsPassRepeats ? 32_768 : 0), at);
    for (const { digest, cost, limit } of group.limits) {
      at = packed.writeUInt16BE(logs.get(digest) as number, at);
      at = packed.writeUInt32BE(cost, at);
      at = packed.writeUInt32BE(limit.max, at);
    }
    const runsAt = at;
    let runs = 0;
    at += 2;
    const { records } = group;
    for (let first = 0; first < records.length; ) {
      const table = records.tableOf(first);
      const hasClaim = records.claimOf(first) !== undefined;
      const end = hasClaim ? first + 1 : endOfRun(records, first);
      rows[table] ??= Buffer.allocUnsafe(bytesMax);
      const start = rowsAt[table] ?? 0;
      const rowsEnd = records.write(rows[table] as Buffer, start, first, end, rowNumber);
      rowsAt[table] = rowsEnd;
      rowNumber += end - first;
      runs += 1;
      at = packed.writeUInt8(hasClaim ? table + 128 : table, at);
      at = packed.writeUInt16BE(end - first, at);
      at = packed.writeUInt32BE(rowsEnd - start, at);
      first = end;
    }
    packed.writeUInt16BE(runs, runsAt);
  }
  return {
    decisions: packed.subarray(0, at),
    rows: rows.map((text, table) => text.subarray(0, rowsAt[table])),
  };
}

/** Writes each log once; answers their numbers by digest, and where they end. */
function writeLogs(packed: Buffer, from: number, groups: readonly Group[]) {
  const logs = new Map<string, number>();
  let end = from + 2;
  for (const group of groups) {
    for (const { digest, limit } of group.limits) {
      if (logs.has(digest)) continue;
      logs.set(digest, logs.size);
      end += packed.write(digest, end, 12, 'hex');
      end = packed.writeUInt32BE(limit.windowMs, end);
      end = packed.writeUInt32BE(limit.granularityMs, end);
    }
  }
  packed.writeUInt16BE(logs.size, from);
  return { logs, end };
}

function writeClaims(packed: Buffer, from: number, groups: readonly Group[]) {
  let at = from + 2;
  for (const { records } of groups) {
    for (let i = 0; i < records.length; i++) {
      const claim = records.claimOf(i);
      if (claim !== undefined) at += packed.write(claim, at, claimBytes, 'hex');
    }
  }
  packed.writeUInt16BE((at - from - 2) / claimBytes, from);
  return at;
}

function endOfRun(records: Records, first: number): number {
  const table = records.tableOf(first);
  let end = first + 1;
  while (end < records.length && records.tableOf(end) === table && records.claimOf(end) === undefined)
    end += 1;
  return end;
}
