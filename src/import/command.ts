// The command line of the importer: what it prints, and its exit codes. 0: every row is stored. 1: some rows were refused, or the import
// could not continue. 130: it was stopped, and the same command continues it. `main.ts` is the program.

import { ImportError, type ImportOptions, readOptions, usage } from './options.js';
import { createNotes, type DryRun, type Imported, type Notes, runDry, runImport } from './run.js';

/** Where the command prints, as `process` has them. */
export type Streams = {
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
};

const number = (count: number) => count.toLocaleString('en');

type Say = (...lines: readonly string[]) => void;

/** Names in an archive or a header come from others, and a terminal would obey their control characters. */
const plain = (line: string) => line.replaceAll(/[^\P{Cc}\n\t]/gu, '\ufffd');

const listed = (counts: Readonly<Record<string, number>>) =>
  Object.entries(counts)
    .map(([name, count]) => `${name} ${number(count)}`)
    .join(', ');

/** Prints the notes about rows; in a dry run they say `would`. */
function sayNotes(
  { mended, commas, sharedWords, sameKeys, words }: Notes,
  options: ImportOptions,
  say: Say,
): void {
  const { mapping, dryRun } = options;
  say(...words);
  if (listed(mended) !== '') say(`mended: ${listed(mended)}`);
  if (listed(commas) !== '')
    say(
      `numbers with a decimal comma are kept as text, and sums count them as 0: ${listed(commas)}; --decimal-comma NAMES reads them`,
    );
  if (listed(sharedWords) !== '')
    say(
      `no device is merged into a word that many users may share: ${listed(sharedWords)}; if the environment allows it as an identity, --allow-identities says so`,
    );
  if (dryRun && mapping.preset === undefined && mapping.timestamp === undefined)
    say('no --timestamp is given, so all rows would have the time of the import');
  if (dryRun && mapping.preset === 'mixpanel' && mapping.timeFormat.zone === undefined)
    say(
      'times are taken as UTC; projects made before 2023 export the time of their own zone: --time-zone says which',
    );
  const { equal, different, places } = sameKeys;
  const be = dryRun ? 'would be' : 'are';
  if (equal > 0) say(`${number(equal)} records ${be} repeats: an earlier row has the same key and content`);
  if (different > 0)
    say(
      `${number(different)} records ${be} lost: an earlier row has the same key and other content, and one key is stored once (${places.join(', ')}${different > places.length ? ', …' : ''})`,
    );
}

function reportDry(
  { read, refused, faults }: DryRun,
  options: ImportOptions,
  notes: Notes,
  say: Say,
): number {
  for (const [fault, { count, places }] of faults)
    say(`${number(count)} × ${fault} (${places.join(', ')}${count > places.length ? ', …' : ''})`);
  sayNotes(notes, options, say);
  say(`dry run: ${number(read)} rows read, ${number(refused)} would be refused; nothing was sent`);
  return refused === 0 && notes.sameKeys.different === 0 ? 0 : 1;
}

function report(
  { verified, ...counts }: Imported,
  options: ImportOptions,
  notes: Notes,
  isStopped: boolean,
  say: Say,
): number {
  sayNotes(notes, options, say);
  const { read, stored, repeats, refused } = counts;
  const taken =
    repeats === 0
      ? ''
      : `, ${number(repeats)} repeats, whose keys were taken by an earlier import, an earlier row or another sender`;
  say(`${number(read)} rows read, ${number(stored)} stored${taken}, ${number(refused)} refused`);
  if (stored > 0) say('rows about suppressed users count as stored here, and are left out');
  if (refused > 0) say(`the refused rows are in ${options.rejectsFile}, each with its reason`);
  if (verified !== undefined)
    say(
      `verified: ${listed(verified)}${verified.unknown > 0 ? '; the unknown ones are not stored: import the file again with another --state' : ''}`,
    );
  if (isStopped) {
    say('stopped; the same command continues from here');
    return 130;
  }
  const isStored = verified === undefined || verified.unknown + verified.waiting === 0;
  return refused === 0 && isStored ? 0 : 1;
}

/** Runs one command; settles with its exit code. `stop` ends the import after the chunks under way. */
export async function importCommand(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  stop: AbortSignal,
  { stdout, stderr }: Streams,
): Promise<number> {
  const say: Say = (...lines) => {
    for (const line of lines) stderr.write(`import: ${plain(line)}\n`);
  };
  try {
    const options = readOptions(args, env);
    const notes = createNotes();
    if (options === undefined) {
      stdout.write(`${usage}\n`);
      return args.includes('--help') ? 0 : 1;
    }
    if (options.dryRun) {
      const dry = await runDry(options, stop, notes);
      for (const record of dry.first) stdout.write(`${record}\n`);
      return reportDry(dry, options, notes, say);
    }
    const { verified, ...counts } = await runImport(options, stop, notes);
    const code = report({ verified, ...counts }, options, notes, stop.aborted, say);
    stdout.write(`${JSON.stringify({ ...counts, ...(verified && { verified }) })}\n`);
    return code;
  } catch (error) {
    if (!(error instanceof ImportError)) throw error;
    say(error.message);
    return stop.aborted ? 130 : 1;
  }
}
