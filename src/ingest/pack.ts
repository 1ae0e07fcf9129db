// The binary layout in which groups of records travel to the commit script: one argument instead of several
// a record, since Redis and Lua pay for each. All integers are big-endian.
//
//   group   u16 limits (+32768 when its limits let repeats pass), { 12 B digest, u32 cost, u32 max, u32 window ms, u32 granularity ms } …,
//           u16 records, u32 bytes of the records that follow
//   record  u8 table (+128 when it claims), u32 bytes of its row, [14 B of its event id], row

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
const groupBytes = 8;
const recordBytes = 19;
const rowNumberBytesMax = 5;

/** Upper bound of a group's packed size in bytes. */
export function packedBytesMax(limits: readonly LimitCheck[], records: readonly IngestRecord[]): number {
  let bytes = groupBytes + limits.length * limitBytes;
  for (const record of records) bytes += recordBytes + rowNumberBytesMax + Buffer.byteLength(record.row);
  return bytes;
}

/** Packs groups, numbering the rows from 0 in the order given. */
export function packGroups(groups: readonly Group[]): Buffer {
  let bytesMax = 0;
  for (const group of groups) bytesMax += group.bytes;
  const packed = Buffer.allocUnsafe(bytesMax);
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
    at = packed.writeUInt16BE(group.records.length, at);
    const sizeAt = at;
    at += 4;
    for (const record of group.records) {
      const claimBytes = record.claim === undefined ? 0 : 14;
      const rowAt = at + 5 + claimBytes;
      let rowBytes = packed.write(record.row, rowAt, 'utf8');
      rowBytes += packed.write(String(rowNumber), rowAt + rowBytes, 'latin1');
      rowNumber += 1;
      at = packed.writeUInt8(record.claim === undefined ? record.table : record.table + 128, at);
      at = packed.writeUInt32BE(rowBytes, at);
      if (record.claim !== undefined) packed.write(record.claim, at, 14, 'hex');
      at = rowAt + rowBytes;
    }
    packed.writeUInt32BE(at - sizeAt - 4, sizeAt);
  }
  return packed.subarray(0, at);
}
