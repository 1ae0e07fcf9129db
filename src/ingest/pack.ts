// The binary layout in which groups of records travel to the commit script. Everything that has to be decided is in one argument, since
// each argument costs Redis and Lua time. Each table's rows are in one argument, since every byte of every string that Lua makes costs
// time. All integers are big-endian. What the script has to look up comes first, so that it can look up everything at once.
//
//   u8 kinds of logs, { u32 window ms, u32 granularity ms, u16 logs of this kind,
//     { 12 B digest of what is limited } …, { u32 cost of all groups together } …, { u32 least max } … } …
//   u16 claims, { 3 B of the event id } …, { 13 B of the event id, the record's fingerprint } …
//   u16 names, u16 joins among them, u32 bytes of what follows,
//     { u8 bytes of the name, u8 bytes of what it is joined to or 0, name, and for a join: that, u16 log from 0, u32 max } …
//   u16 environments, { u8 bytes of the app_id, app_id } …
//   u8 1 if the groups must be decided one by one, u8 1 if records are marked, u32 bytes of what follows:
//     groups: u16 limits (+32768 if its limits let repeats pass), { u16 log from 0, u32 cost, u32 max } …, u16 runs, its runs
//   the runs of all groups, merged into as few as possible. If the limits have room for all groups, the script reads these instead of
//   the groups' own; it reads none if no record is marked and no key is claimed already
//
// A run: { u8 rows argument from 0 (+128 if its records take the next claims, +64 if they are skipped, +32 if they take the next names),
//          u16 environment from 0, u16 records, u32 bytes of their rows }
// Its records have the same table, environment and mark, and all have claims or none has one. Records are plain if nothing is added to the
// argument's index. Among the runs of all groups, a run of plain records may have several environments.
// Its rows are the next ones in its table's argument. A skipped record is decided like others but has no row. If it has a claim, a row with
// its event id and nothing else takes the place of its own.

import { markerRows } from '../clickhouse/tables.js';
import type { RateLimit } from '../contract/limits.js';
import { currentVersionOf, recordColumns, type TableName, tables } from '../contract/records.js';
import { noEventId } from './event-id.js';
import { fingerprintOfRow } from './fingerprint.js';

/** One rate limit that a group must pass. */
export type LimitCheck = {
  /** 24 hexadecimal digits: a hash of what is limited. Each digest always has the same window and granularity. */
  readonly digest: string;
  readonly cost: number;
  readonly limit: RateLimit;
};

/** A limit without what a group costs. */
type LogCheck = Pick<LimitCheck, 'digest' | 'limit'>;

/** One row on its way to a table. */
export type IngestRecord = {
  /** Index in `tables` of `contract/records.ts`. */
  readonly table: number;
  /** The encoded row, which ends with the comma before its number in the commit. */
  readonly row: string;
  /** The event id to claim (32 hexadecimal digits); undefined if nothing is claimed. */
  readonly claim: string | undefined;
};

/** Some records in their order, as packing needs them. */
export type Records = {
  readonly length: number;
  /** An upper bound of the bytes that `write` writes for all of them. */
  readonly rowBytesMax: number;
  /** Index in `tables` of `contract/records.ts`. */
  tableOf(index: number): number;
  /** The event id to claim (32 hexadecimal digits); undefined if nothing is claimed. */
  claimOf(index: number): string | undefined;
  /**
   * Writes the rows of some records one after another, each followed by its number in the commit and a line feed. Returns
   * where they end.
   */
  write(rows: Rows, at: number, first: number, end: number, firstNumber: number): number;
};

/** What rows are written into, and the same memory for what reads or writes several bytes at once. */
export type Rows = { readonly into: Buffer; readonly view: DataView };

/** What the suppressions say about a record. */
export type Mark =
  /** Its user is suppressed. It is decided and answered like others, but only the id of its key is kept. */
  | 'skipped'
  /** Its anonymous user is not known to be suppressed, but a commit may have joined them to a suppressed user under this name. */
  | { readonly name: string; readonly joins?: undefined }
  /** It is skipped, and the commit joins its anonymous user to the user `joins`. */
  | { readonly name: string; readonly joins: string };

/** Records that are accepted or limited together: one request, or some messages of one. */
export type Group = {
  readonly appId: string;
  readonly limits: readonly LimitCheck[];
  /** By record; undefined if none has a mark. Set by its submission. */
  marks?: readonly (Mark | undefined)[] | undefined;
  /** The limit on joins. If it has no room, a user is not joined, but nothing is refused. Set by its submission. */
  joinLimit?: LogCheck | undefined;
  /** If all its records are repeats, the limits neither refuse nor count it. */
  readonly limitsPassRepeats?: boolean;
  readonly records: Records;
  /** Upper bound of its packed size, for the bounds of commits. */
  readonly bytes: number;
};

/** By table: the index of its time column, or -1. */
const timeColumns = tables.map((table) => Object.values<string>(recordColumns[table]).indexOf('time'));
const digestBytes = 12;
/** Bytes of a log, perhaps the only one of its kind, and of the reference to it. */
const limitBytesMax = 30 + 10;
const groupBytes = 4;
/** Bytes of an event id in a claim. Its first bytes are written twice, since they decide in which bucket Redis keeps it. */
const claimedIdBytes = 13;
const idPrefixBytes = 3;
const claimBytes = claimedIdBytes + 1;
const runBytes = 9;
/** Bytes of an environment: its app_id, a number of at most 32 digits, with its length. */
const environmentBytesMax = 33;
/** Bytes of a record's claim and its run, which is written twice; every record may be a run. */
const recordDecisionBytesMax = 2 * runBytes + idPrefixBytes + claimBytes;
/** Bytes of the counts of logs, claims, names and environments, and of what precedes the groups. */
const headBytes = 20;
/** Bytes of a name and a join without their texts. */
const nameBytes = 8;
/** Bytes of a row's number in the commit and of the line feed. */
const rowEndBytesMax = 6;

/** Upper bound of a group's packed size in bytes, even if it is alone in its commit. */
export function packedBytesMax(limits: readonly LimitCheck[], records: Records): number {
  const decisions = headBytes + groupBytes + environmentBytesMax + limits.length * limitBytesMax;
  return decisions + recordsBytesMax(records);
}

/** Upper bound of a record's share of its group's packed size. */
export function recordBytesMax({ row }: IngestRecord): number {
  return recordDecisionBytesMax + rowEndBytesMax + Buffer.byteLength(row);
}

/** The same for all records of a group. */
export function recordsBytesMax({ length, rowBytesMax }: Records): number {
  return length * recordDecisionBytesMax + rowBytesMax;
}

export function encodedRecords(records: readonly IngestRecord[]): Records {
  let rowBytesMax = 0;
  for (const { row } of records) rowBytesMax += rowEndBytesMax + Buffer.byteLength(row);
  return {
    length: records.length,
    rowBytesMax,
    tableOf: (index) => (records[index] as IngestRecord).table,
    claimOf: (index) => (records[index] as IngestRecord).claim,
    write: ({ into }, at, first, end, firstNumber) => {
      let text = '';
      for (let i = first; i < end; i++)
        text += `${(records[i] as IngestRecord).row}${firstNumber + i - first}\n`;
      return at + into.write(text, at, 'utf8');
    },
  };
}

export type Packed = {
  /** What the rows were written into. */
  readonly buffers: readonly Buffer[];
  /** The script's argument with everything that it has to decide. */
  readonly decisions: Buffer;
  /** The script's arguments about the tables that get rows. */
  readonly tables: readonly (string | number | Buffer)[];
};

/** Where decisions are written. They rarely have a tenth of the bytes that they might have. */
let scratch = Buffer.alloc(0);

/** Packs groups, numbering the rows from 0 in the order given. `take` makes the buffers of their rows. */
export function packGroups(
  groups: readonly Group[],
  take: (bytesMin: number) => Buffer = Buffer.allocUnsafe,
): Packed {
  let bytesMax = 0;
  let decisionBytesMax = headBytes;
  let [oneByOne, isMarked] = [0, 0];
  for (const group of groups) {
    bytesMax += group.bytes;
    decisionBytesMax +=
      groupBytes +
      environmentBytesMax +
      group.limits.length * limitBytesMax +
      group.records.length * recordDecisionBytesMax;
    if (group.marks !== undefined) {
      decisionBytesMax += limitBytesMax + bytesOfNames(group.marks);
      isMarked = 1;
    }
    if (group.limitsPassRepeats) oneByOne = 1;
  }
  if (scratch.length < decisionBytesMax) scratch = Buffer.allocUnsafeSlow(decisionBytesMax);
  const packed = scratch;
  const rows: ReturnType<typeof newRows>[] = [];
  const argumentOf: number[] = [];
  const merged: Run[] = [];
  let rowNumber = 0;

  const { logs, end } = writeLogs(packed, 0, groups);
  const claims = writeClaims(packed, end, groups);
  const namesEnd = writeNames(packed, claims.end, groups, logs);
  const { environments, end: environmentsEnd } = writeEnvironments(packed, namesEnd, groups);
  const groupsAt = environmentsEnd + 6;
  let at = groupsAt;
  let fingerprintAt = claims.entriesAt + claimedIdBytes;
  for (const group of groups) {
    at = packed.writeUInt16BE(group.limits.length + (group.limitsPassRepeats ? 32_768 : 0), at);
    for (const { digest, cost, limit } of group.limits) {
      at = packed.writeUInt16BE((logs.get(digest) as Log).number, at);
      at = packed.writeUInt32BE(cost, at);
      at = packed.writeUInt32BE(limit.max, at);
    }
    const runsAt = at;
    let runs = 0;
    at += 2;
    const { appId, records, marks } = group;
    const environment = environments.get(appId) as number;
    for (let first = 0; first < records.length; ) {
      const table = records.tableOf(first);
      const hasClaim = records.claimOf(first) !== undefined;
      const mark = marks?.[first];
      const end = endOfRun(records, marks, first);
      argumentOf[table] ??= rows.push(newRows(table, take(bytesMax))) - 1;
      const argument = argumentOf[table];
      const written = rows[argument] as (typeof rows)[number];
      const start = written.end;
      // Each row with a claim has a fingerprint.
      const step = hasClaim ? 1 : end - first;
      for (let i = first; i < end; i += step) {
        const rowAt = written.end;
        written.end = records.write(written, rowAt, i, i + step, rowNumber);
        if (hasClaim) {
          const timeColumn = timeColumns[table] as number;
          packed[fingerprintAt] = fingerprintOfRow(written.view, rowAt, written.end, timeColumn);
          fingerprintAt += claimBytes;
        }
        if (isSkipped(mark))
          written.end = writeKeyRow(written.into, rowAt, table, records.claimOf(i), rowNumber);
        rowNumber += step;
      }
      runs += 1;
      const bits = (hasClaim ? 128 : 0) + (mark === undefined ? 0 : bitsOf(mark));
      written.records += end - first;
      if (mark === undefined) {
        const counted = hasClaim ? written.claiming : written.plain;
        counted.set(appId, (counted.get(appId) ?? 0) + end - first);
      }
      const run = {
        kind: argument + bits,
        environment,
        records: end - first,
        bytes: written.end - start,
      };
      at = writeRun(packed, at, run);
      const last = merged[merged.length - 1];
      if (
        last?.kind === run.kind &&
        (bits === 0 || (last.environment === run.environment && canBeMerged(bits)))
      ) {
        last.records += run.records;
        last.bytes += run.bytes;
      } else {
        merged.push(run);
      }
      first = end;
    }
    packed.writeUInt16BE(runs, runsAt);
  }
  packed.writeUInt8(oneByOne, groupsAt - 6);
  packed.writeUInt8(isMarked, groupsAt - 5);
  packed.writeUInt32BE(at - groupsAt, groupsAt - 4);
  for (const run of merged) at = writeRun(packed, at, run);
  return {
    buffers: rows.map(({ into }) => into),
    decisions: Buffer.from(packed.subarray(0, at)),
    tables: rows.flatMap(({ table, into, end, records, plain, claiming }) => {
      const name = tables[table] as TableName;
      const text = into.subarray(0, end);
      return [currentVersionOf(name), markerRows[name], text, records, linesOf(plain), linesOf(claiming)];
    }),
  };
}

/** A row of each table without user and id: the text before the id, and the text after it up to the row's number. */
const emptyRows = tables.map((table) => markerRows[table].slice(0, -1).split(noEventId) as [string, string]);

/** Writes the row of a skipped record's key, so that this key is remembered as long as others. Returns where it ends. */
function writeKeyRow(
  into: Buffer,
  at: number,
  table: number,
  id: string | undefined,
  rowNumber: number,
): number {
  if (id === undefined) return at;
  const [before, after] = emptyRows[table] as [string, string];
  return at + into.write(`${before}${id}${after}${rowNumber}\n`, at, 'latin1');
}

type Run = { readonly kind: number; readonly environment: number; records: number; bytes: number };

function writeRun(packed: Buffer, at: number, { kind, environment, records, bytes }: Run): number {
  const next = packed.writeUInt16BE(environment, packed.writeUInt8(kind, at));
  return packed.writeUInt32BE(bytes, packed.writeUInt16BE(records, next));
}

/** Writes each environment once. Returns them by app_id, and where they end. */
function writeEnvironments(packed: Buffer, from: number, groups: readonly Group[]) {
  const environments = new Map<string, number>();
  let end = from + 2;
  for (const { appId } of groups) {
    if (environments.has(appId)) continue;
    environments.set(appId, environments.size);
    end = packed.writeUInt8(appId.length, end);
    end += packed.write(appId, end, 'latin1');
  }
  packed.writeUInt16BE(environments.size, from);
  return { environments, end };
}

/** Whether a run and the next run of its kind may become one: not if they may have different names. */
function canBeMerged(bits: number): boolean {
  return (bits & 32) === 0;
}

export function viewOf({ buffer, byteOffset, length }: Buffer): DataView {
  return new DataView(buffer, byteOffset, length);
}

function newRows(table: number, into: Buffer) {
  const view = viewOf(into);
  /** The number of plain records by environment, and that of records with a claim and without a mark. */
  const [plain, claiming] = [new Map<string, number>(), new Map<string, number>()];
  return { table, into, view, end: 0, records: 0, plain, claiming };
}

/** Lines of the ledger: an app_id and a number each. */
function linesOf(counts: ReadonlyMap<string, number>): string {
  return Array.from(counts, ([appId, records]) => `${appId} ${records}\n`).join('');
}

/** A log: its index among the logs, the cost of all groups together, and the least `max` of any of them. */
type Log = { number: number; readonly digest: string; cost: number; max: number };
type Logs = ReadonlyMap<string, Log>;

/** Writes each log once, those with the same window and granularity together. Returns them by digest, and where they end. */
function writeLogs(packed: Buffer, from: number, groups: readonly Group[]) {
  const logs = new Map<string, Log>();
  const kinds: { readonly windowMs: number; readonly granularityMs: number; readonly logs: Log[] }[] = [];
  const add = ({ digest, limit: { max, windowMs, granularityMs } }: LogCheck, cost: number) => {
    const known = logs.get(digest);
    if (known !== undefined) {
      known.cost += cost;
      if (max < known.max) known.max = max;
      return;
    }
    const log = { number: 0, digest, cost, max };
    logs.set(digest, log);
    const kind = kinds.find((each) => each.windowMs === windowMs && each.granularityMs === granularityMs);
    if (kind === undefined) kinds.push({ windowMs, granularityMs, logs: [log] });
    else kind.logs.push(log);
  };
  for (const { limits, joinLimit } of groups) {
    for (const check of limits) add(check, check.cost);
    if (joinLimit !== undefined) add(joinLimit, 0);
  }
  let end = packed.writeUInt8(kinds.length, from);
  let number = 0;
  for (const { windowMs, granularityMs, logs } of kinds) {
    end = packed.writeUInt32BE(windowMs, end);
    end = packed.writeUInt32BE(granularityMs, end);
    end = packed.writeUInt16BE(logs.length, end);
    for (const log of logs) {
      log.number = number++;
      end += packed.write(log.digest, end, digestBytes, 'hex');
    }
    for (const { cost } of logs) end = packed.writeUInt32BE(cost, end);
    for (const { max } of logs) end = packed.writeUInt32BE(max, end);
  }
  return { logs, end };
}

/** Divides the letters of all records among their groups. Throws if there are not as many letters as records. */
export function lettersByGroup(letters: string, groups: readonly Group[]): string[] {
  let end = 0;
  const divided = groups.map(({ records }) => {
    const start = end;
    end += records.length;
    return letters.slice(start, end);
  });
  if (letters.length !== end) throw new Error('the commit script answered for other records');
  return divided;
}

/** Writes all claims except their fingerprints, which are taken from the rows. Returns where their entries begin and end. */
function writeClaims(packed: Buffer, from: number, groups: readonly Group[]) {
  let claims = 0;
  for (const { records } of groups) {
    for (let i = 0; i < records.length; i++) if (records.claimOf(i) !== undefined) claims += 1;
  }
  let prefixAt = packed.writeUInt16BE(claims, from);
  const entriesAt = prefixAt + claims * idPrefixBytes;
  let at = entriesAt;
  for (const { records } of groups) {
    for (let i = 0; i < records.length; i++) {
      const claim = records.claimOf(i);
      if (claim === undefined) continue;
      packed.write(claim, at, claimedIdBytes, 'hex');
      for (let byte = 0; byte < idPrefixBytes; byte++) packed[prefixAt++] = packed[at + byte] as number;
      at += claimBytes;
    }
  }
  return { entriesAt, end: at };
}

/** Writes the names of anonymous users who may have been joined to suppressed ones. Returns where they end. */
function writeNames(packed: Buffer, from: number, groups: readonly Group[], logs: Logs) {
  const start = from + 8;
  let [at, names, joins] = [start, 0, 0];
  for (const { marks = [], joinLimit } of groups) {
    for (const mark of marks) {
      if (mark === undefined || mark === 'skipped') continue;
      names += 1;
      at = packed.writeUInt8(mark.name.length, at);
      at = packed.writeUInt8(mark.joins?.length ?? 0, at);
      at += packed.write(mark.name, at, 'latin1');
      if (mark.joins === undefined || joinLimit === undefined) continue;
      joins += 1;
      at += packed.write(mark.joins, at, 'latin1');
      at = packed.writeUInt16BE((logs.get(joinLimit.digest) as Log).number, at);
      at = packed.writeUInt32BE(joinLimit.limit.max, at);
    }
  }
  packed.writeUInt16BE(names, from);
  packed.writeUInt16BE(joins, from + 2);
  packed.writeUInt32BE(at - start, from + 4);
  return at;
}

function bytesOfNames(marks: readonly (Mark | undefined)[]): number {
  let bytes = 0;
  for (const mark of marks) {
    if (typeof mark === 'object') bytes += nameBytes + mark.name.length + (mark.joins?.length ?? 0);
  }
  return bytes;
}

function isSkipped(mark: Mark | undefined): boolean {
  return mark !== undefined && (mark === 'skipped' || mark.joins !== undefined);
}

function bitsOf(mark: Mark): number {
  if (mark === 'skipped') return 64;
  return mark.joins === undefined ? 32 : 96;
}

function endOfRun(records: Records, marks: Group['marks'], first: number): number {
  const table = records.tableOf(first);
  const hasClaim = records.claimOf(first) !== undefined;
  const mark = marks?.[first];
  let end = first + 1;
  while (
    end < records.length &&
    records.tableOf(end) === table &&
    (records.claimOf(end) !== undefined) === hasClaim &&
    (marks === undefined || areAlike(mark, marks[end]))
  )
    end += 1;
  return end;
}

/** Whether the script decides the same about the users of two records. */
function areAlike(a: Mark | undefined, b: Mark | undefined): boolean {
  if (typeof a !== 'object' || typeof b !== 'object') return a === b;
  return a.name === b.name && a.joins === undefined && b.joins === undefined;
}
