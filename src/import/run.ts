// Runs an import: maps and sends rows in chunks. Several chunks are under way at once but are counted in order. So one place says how far a
// file is stored, and counts and rejects are exact whenever the import is killed.

import { setTimeout as wait } from 'node:timers/promises';
import { claimFiles } from './claims.js';
import { continueGrown } from './grown.js';
import { assertAllSound, type Input, isSameFile, openInputs } from './inputs.js';
import { createMapper, type Mapper, placeKey, rejectColumns } from './mapping.js';
import { ImportError, type ImportOptions } from './options.js';
import { createOwnKeys, type OwnKeys, type SameKeys } from './own-keys.js';
import { showProgress } from './progress.js';
import { openRejects } from './rejects.js';
import type { ReadOptions, Row } from './row.js';
import { readRows } from './rows.js';
import {
  createSender,
  type Lane,
  type Outgoing,
  type ReceiptStatus,
  type Sender,
  type Sent,
  Stopped,
} from './sender.js';
import { assertUnchanged } from './source.js';
import {
  type Counts,
  type FileState,
  fileState,
  type ImportState,
  isDone,
  openState,
  totalsOf,
  writeState,
} from './state.js';
import { textOf } from './values.js';

/**
 * Chunks under way at once. With 16 an import was no faster than with 4 (47 and 45 s for 3 million flights), and more has to be repeated
 * after a kill.
 */
const chunksAtOnce = 4;
/** Characters under way at once; a bound for large rows. */
const charactersAtOnce = 1 << 24;
const stateEveryMs = 250;

/** What people should know about the rows, in addition to their counts. */
export type Notes = ReturnType<typeof createNotes>;

/** How many rows have which status. `unknown`: the row is not stored. */
export type Verified = Record<ReceiptStatus, number>;

export type Imported = Counts & { readonly verified?: Verified };

export function createNotes() {
  return {
    /** How many values were mended, by reason. */
    mended: {} as Record<string, number>,
    /** Numbers with a decimal comma that were kept as text, by column. */
    commas: {} as Record<string, number>,
    /** Rows that would merge a device into a word that strangers share, by word. */
    sharedWords: {} as Record<string, number>,
    sameKeys: { equal: 0, different: 0, places: [] } as SameKeys,
    /** Notes about whole files. */
    words: [] as string[],
  };
}

/** Notes if a file has no rows: perhaps it was read in the wrong format. */
function noteFileWithoutRows({ words }: Notes, { name, bytes }: Input, read: number): void {
  if (read === 0 && bytes > 0) words.push(`${name}: no row was found in its ${bytes} bytes`);
}

function addNotes({ mended, commas, sharedWords }: Notes, mapper: Mapper): void {
  const add = (sums: Record<string, number>, counts: ReadonlyMap<string, number>) => {
    for (const [name, count] of counts) sums[name] = (sums[name] ?? 0) + count;
  };
  add(mended, mapper.mendings);
  add(commas, mapper.commas);
  add(sharedWords, mapper.sharedWords);
}

/** Imports all files. Settles when every row is stored or refused or, after `stop`, once the chunks under way are done. */
export async function runImport(
  options: ImportOptions,
  stop: AbortSignal,
  notes: Notes = createNotes(),
): Promise<Imported> {
  const release = claimFiles(options);
  try {
    return await importFiles(options, stop, notes);
  } finally {
    release();
  }
}

async function importFiles(options: ImportOptions, stop: AbortSignal, notes: Notes): Promise<Imported> {
  const inputs = await openInputs(options.files, options, stop);
  const { state, isOld } = openState(options.stateFile, options.appId, JSON.stringify(describe(options)));
  const sender = createSender(options, chunksAtOnce, stop);
  await sender.probe();
  const ownKeys = createOwnKeys(notes.sameKeys);
  notes.words.push(...(await continueGrown(state, inputs)));
  const wasDone = isDone(state);
  const unchecked = inputs.filter(({ hash }) => state.files[hash] === undefined);
  // The state lists all files before a row is refused: otherwise everything would seem done.
  for (const input of inputs) fileState(state, input);
  for (const input of inputs)
    if (isSameFile(input.path, options.rejectsFile))
      throw new ImportError(`--rejects ${options.rejectsFile}: it is a file to import; name another file`);
  for (const [hash, content] of await assertAllSound(unchecked, stop)) {
    const file = state.files[hash];
    if (file === undefined || file.read > 0) continue;
    file.keys = content.hash;
    file.content_bytes = content.bytes;
  }
  if (stop.aborted) return totalsOf(state);
  const rejects = openRejects(options.rejectsFile, {
    bytes: state.rejects_bytes,
    isContinued: isOld,
    isDone: wasDone,
  });
  // From now on the rejects file belongs to this state, even if the import is killed.
  writeState(options.stateFile, state);
  const shares = new Map<string, number>();
  const bytes = inputs.reduce((sum, input) => sum + input.bytes, 0);
  const share = () =>
    inputs.reduce((sum, input) => sum + input.bytes * (shares.get(input.hash) ?? 0), 0) / Math.max(1, bytes);
  let verified: Verified | undefined;
  const progress = showProgress(() => totalsOf(state), share, sender);
  let writtenMs = performance.now();
  const save = () => {
    writeState(options.stateFile, state);
    writtenMs = performance.now();
  };
  try {
    const pace = createPace(options.rowsPerSecondMax, stop);
    for (const input of inputs) {
      const file = fileState(state, input);
      if (!file.done && !stop.aborted) {
        const hash = file.keys ?? input.hash;
        const mapper = createMapper(options, hash);
        const keyOf = placeKey(hash, options.mapping);
        const settle = (settled: Settled) => {
          add(file, settled, (row, reason) => {
            const key = textOf(row.value?.[rejectColumns.key]) ?? keyOf(row.place);
            rejects.add(input.name, row, key, reason);
          });
          state.rejects_bytes = rejects.bytes();
          if (performance.now() - writtenMs >= stateEveryMs) save();
        };
        const onShare = (part: number) => void shares.set(input.hash, part);
        await importFile({ input, file, mapper, ownKeys, sender, options, stop, pace, settle, onShare });
        addNotes(notes, mapper);
        assertUnchanged(input);
        file.done = !stop.aborted;
      }
      if (!file.done) continue;
      shares.set(input.hash, 1);
      noteFileWithoutRows(notes, input, file.read);
    }
    if (options.verify && inputs.every((input) => fileState(state, input).done))
      verified = await verify(options, inputs, state, sender, stop);
  } catch (error) {
    if (!(error instanceof Stopped)) throw error;
  } finally {
    progress.stop();
    sender.close();
    rejects.close();
    save();
  }
  return { ...totalsOf(state), ...(verified !== undefined && { verified }) };
}

type Work = {
  readonly input: Input;
  readonly file: FileState;
  readonly mapper: Mapper;
  readonly ownKeys: OwnKeys;
  readonly sender: Sender;
  readonly options: ImportOptions;
  readonly stop: AbortSignal;
  readonly pace: ReturnType<typeof createPace>;
  /** Called for each chunk, in the order of the file. */
  readonly settle: (settled: Settled) => void;
  readonly onShare: (share: number) => void;
};

/** What happened to some rows: why some were refused, by position, and how many others were already stored entirely. */
type Settled = {
  readonly rows: readonly Row[];
  readonly refused: ReadonlyMap<number, string>;
  readonly repeats: number;
};

async function importFile({
  input,
  file,
  mapper,
  ownKeys,
  sender,
  options,
  stop,
  pace,
  settle,
  onShare,
}: Work): Promise<void> {
  const done = file.place;
  // What a preset makes of a row may depend on earlier rows, so it also gets the rows that were already done.
  const reading = readRows(
    input,
    readingOf(options, mapper, options.mapping.preset === undefined ? done : 0, onShare),
  );
  const prepareRows = (rows: readonly Row[]) =>
    prepare(rows, mapper, (record, place) => ownKeys.note(record, input.name, place));
  const onTheWay: InFlight[] = [];
  let characters = 0;
  const settleOldest = async () => {
    const oldest = onTheWay.shift() as InFlight;
    characters -= oldest.characters;
    settle(await oldest.settled);
  };
  let lastMessages: Promise<unknown> = Promise.resolve();
  for await (const read of reading) {
    if (stop.aborted) break;
    const rows = read.filter(({ place }) => place > done);
    if (rows.length < read.length) prepareRows(read.slice(0, read.length - rows.length));
    if (rows.length === 0) continue;
    await pace(rows.length);
    const prepared = prepareRows(rows);
    const { sent, messages } = sendLanes(sender, prepared, lastMessages);
    if (messages !== undefined) lastMessages = messages;
    const settled = settledOf(rows, prepared, sent);
    // It is awaited later, in order. Until then a failure must not count as unhandled.
    settled.catch(() => undefined);
    onTheWay.push({ settled, characters: prepared.characters });
    characters += prepared.characters;
    while (onTheWay.length >= chunksAtOnce || (characters > charactersAtOnce && onTheWay.length > 1))
      await settleOldest();
  }
  while (onTheWay.length > 0) await settleOldest();
}

/** Returns a function that waits until so many more rows may be sent, of all files together. */
function createPace(rowsPerSecondMax: number | undefined, stop: AbortSignal) {
  const beganMs = performance.now();
  let begun = 0;
  return async (rows: number): Promise<void> => {
    if (rowsPerSecondMax === undefined) return;
    const dueMs = beganMs + (begun / rowsPerSecondMax) * 1000;
    begun += rows;
    await wait(Math.max(0, dueMs - performance.now()), undefined, { signal: stop }).catch(() => undefined);
  };
}

type InFlight = { readonly settled: Promise<Settled>; readonly characters: number };

/** Records, and of each the position in its chunk of the row that it comes from. */
type Placed = { readonly rows: number[]; jsons: string[] };
type Prepared = {
  readonly lanes: Readonly<Record<Lane, Placed>>;
  /** Rows that are not sent, with the reason. */
  readonly faults: ReadonlyMap<number, string>;
  readonly characters: number;
};

function prepare(
  rows: readonly Row[],
  mapper: Mapper,
  note: (record: Outgoing, place: number) => void,
): Prepared {
  const lanes: Record<Lane, Placed> = { events: { rows: [], jsons: [] }, messages: { rows: [], jsons: [] } };
  const faults = new Map<number, string>();
  let characters = 0;
  for (let row = 0; row < rows.length; row++) {
    const mapped = mapper.map(rows[row] as Row);
    if ('fault' in mapped) {
      faults.set(row, mapped.fault);
      continue;
    }
    for (const record of mapped) {
      const { lane, json } = record;
      note(record, (rows[row] as Row).place);
      lanes[lane].rows.push(row);
      lanes[lane].jsons.push(json);
      characters += json.length;
    }
  }
  return { lanes, faults, characters };
}

const nothing: Sent = { stored: 0, repeats: 0, refused: [] };

/**
 * Sends what was prepared; messages only after those before, since their order decides how users are merged. `messages` settles with
 * the messages. Nothing keeps the texts of events that are under way: what lives for as long as that is what the garbage collector copies.
 */
function sendLanes(sender: Sender, { lanes: { events, messages } }: Prepared, before: Promise<unknown>) {
  const sentEvents = events.jsons.length === 0 ? nothing : sender.send('events', events.jsons);
  events.jsons = [];
  if (messages.jsons.length === 0) return { sent: Promise.all([sentEvents, nothing]), messages: undefined };
  const sentMessages = before.then(() => sender.send('messages', messages.jsons));
  return { sent: Promise.all([sentEvents, sentMessages]), messages: sentMessages };
}

/** What happened to the rows. The service says how many records of a batch were repeats, not which; only the number matters here. */
async function settledOf(
  rows: readonly Row[],
  { lanes, faults }: Prepared,
  sending: Promise<readonly [Sent, Sent]>,
): Promise<Settled> {
  const [events, messages] = await sending;
  const sent = { events, messages };
  const refused = new Map(faults);
  for (const lane of ['events', 'messages'] as const)
    for (const { index, reason } of sent[lane].refused)
      refused.set(lanes[lane].rows[index] as number, reason);
  const { repeats } = sent[lanes.events.rows.length > 0 ? 'events' : 'messages'];
  return { rows, refused, repeats: Math.min(repeats, rows.length - refused.size) };
}

/** Counts a chunk, entirely or not at all, since writing the rejects file may fail. */
function add(
  file: FileState,
  { rows, refused, repeats }: Settled,
  refuse: (row: Row, reason: string) => void,
): void {
  for (const index of [...refused.keys()].sort((one, other) => one - other))
    refuse(rows[index] as Row, refused.get(index) as string);
  file.read += rows.length;
  file.stored += rows.length - refused.size - repeats;
  file.repeats += repeats;
  file.refused += refused.size;
  file.place = (rows.at(-1) as Row).place;
}

function readingOf(
  { mapping, csvDialect, nullText }: ImportOptions,
  { columns, takesRest }: Mapper,
  after = 0,
  onShare: ReadOptions['onShare'] = () => undefined,
): ReadOptions {
  const isMysql = csvDialect === 'mysql';
  return {
    after,
    columns,
    takesRest,
    timeColumn: mapping.timestamp,
    zone: mapping.timeFormat.zone,
    isMysql,
    nullText,
    onShare,
  };
}

/**
 * Reads all files again and asks for a receipt of every record, under the keys that were sent. A row has the worst status of its records.
 * Settles with how many rows have which status, leaving out those that the service refused.
 */
async function verify(
  options: ImportOptions,
  inputs: readonly Input[],
  state: ImportState,
  sender: Sender,
  stop: AbortSignal,
): Promise<Verified> {
  const verified: Verified = { stored: 0, waiting: 0, deleted: 0, unknown: 0 };
  let refused = 0;
  let faults = 0;
  for (const input of inputs) {
    const file = fileState(state, input);
    refused += file.refused;
    const mapper = createMapper(options, file.keys ?? input.hash);
    for await (const rows of readRows(input, readingOf(options, mapper))) {
      if (stop.aborted) throw new Stopped();
      const mapped = rows.map((row) => mapper.map(row)).flatMap((one) => ('fault' in one ? [] : [one]));
      faults += rows.length - mapped.length;
      const statusOf = await sender.receipts(mapped.flatMap((records) => records.map(({ key }) => key)));
      for (const records of mapped)
        verified[worstOf(records.map(({ key }) => statusOf.get(key) as ReceiptStatus))] += 1;
    }
    assertUnchanged(input);
  }
  return { ...verified, unknown: verified.unknown - (refused - faults) };
}

const worstFirst = ['unknown', 'waiting', 'deleted', 'stored'] as const;

function worstOf(statuses: readonly ReceiptStatus[]): ReceiptStatus {
  return worstFirst.find((status) => statuses.includes(status)) ?? 'stored';
}

/** The options that decide which records the rows become. */
function describe(options: ImportOptions): object {
  const { mapping, strict, encoding, csvDialect, nullText, allowedIdentities } = options;
  return {
    ...mapping,
    properties: mapping.properties && [...mapping.properties],
    strict,
    encoding,
    csvDialect,
    nullText,
    allowedIdentities,
  };
}

/** What a dry run finds: the first records, and the faults by kind, each with some of its places. */
export type DryRun = {
  readonly read: number;
  readonly refused: number;
  readonly first: readonly string[];
  readonly faults: ReadonlyMap<string, { count: number; readonly places: string[] }>;
};

const shownRecords = 10;
const shownPlaces = 5;

/** Reads and maps everything, and sends nothing. */
export async function runDry(
  options: ImportOptions,
  stop: AbortSignal,
  notes: Notes = createNotes(),
): Promise<DryRun> {
  const inputs = await openInputs(options.files, options, stop);
  const contents = await assertAllSound(inputs, stop);
  if (stop.aborted) throw new ImportError('stopped');
  const first: string[] = [];
  const faults = new Map<string, { count: number; places: string[] }>();
  const ownKeys = createOwnKeys(notes.sameKeys);
  const state = stateOfDryRun(options);
  if (state !== undefined) notes.words.push(...(await continueGrown(state, inputs)));
  const counts = { read: 0, refused: 0 };
  for (const input of inputs) {
    const readBefore = counts.read;
    const mapper = createMapper(
      options,
      state?.files[input.hash]?.keys ?? contents.get(input.hash)?.hash ?? input.hash,
    );
    for await (const rows of readRows(input, readingOf(options, mapper))) {
      if (stop.aborted) throw new ImportError('stopped');
      for (const row of rows) {
        counts.read += 1;
        const mapped = mapper.map(row);
        if (!('fault' in mapped)) {
          for (const record of mapped) {
            ownKeys.note(record, input.name, row.place);
            if (first.length < shownRecords) first.push(record.json);
          }
          continue;
        }
        counts.refused += 1;
        const found = faults.get(mapped.fault) ?? { count: 0, places: [] };
        found.count += 1;
        if (found.places.length < shownPlaces) found.places.push(`${input.name}:${row.place}`);
        faults.set(mapped.fault, found);
      }
    }
    assertUnchanged(input);
    noteFileWithoutRows(notes, input, counts.read - readBefore);
    addNotes(notes, mapper);
  }
  return { ...counts, first, faults };
}

/** What an import with these options has done so far; undefined if there is none. */
function stateOfDryRun(options: ImportOptions): ImportState | undefined {
  try {
    const mapping = JSON.stringify(describe(options));
    return openState(options.stateFile, options.appId, mapping).state;
  } catch (error) {
    if (error instanceof ImportError) return undefined;
    throw error;
  }
}
