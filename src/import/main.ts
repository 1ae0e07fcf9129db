// `npm run import -- …`: wiring and exit codes. 0: every row is stored. 1: some rows were refused, or the import could not continue. 130:
// it was stopped, and the same command continues it.

import { ImportError, type ImportOptions, readOptions, usage } from './options.js';
import { createNotes, type DryRun, type Imported, type Notes, runDry, runImport } from './run.js';

const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopping.abort());

const number = (count: number) => count.toLocaleString('en');

function say(...lines: readonly string[]): void {
  // Names in an archive or a header come from others, and a terminal would obey their control characters.
  const plain = (line: string) => line.replaceAll(/[^\P{Cc}\n\t]/gu, '\ufffd');
  for (const line of lines) process.stderr.write(`import: ${plain(line)}\n`);
}

const listed = (counts: Readonly<Record<string, number>>) =>
  Object.entries(counts)
    .map(([name, count]) => `${name} ${number(count)}`)
    .join(', ');

/** Prints the notes about rows; in a dry run they say `would`. */
function sayNotes({ mended, commas, sharedWords, sameKeys, words }: Notes, options: ImportOptions): void {
  const { mapping, dryRun } = options;
  say(...words);
  if (listed(mended) !== '') say(`mended: ${listed(mended)}`);
  if (listed(commas) !== '')
    say(
      `numbers with a decimal comma are kept as texts, and sums take them for 0: ${listed(commas)}; --decimal-comma NAMES reads them`,
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

function reportDry({ read, refused, first, faults }: DryRun, options: ImportOptions, notes: Notes): number {
  for (const record of first) process.stdout.write(`${record}\n`);
  for (const [fault, { count, places }] of faults)
    say(`${number(count)} × ${fault} (${places.join(', ')}${count > places.length ? ', …' : ''})`);
  sayNotes(notes, options);
  say(`dry run: ${number(read)} rows read, ${number(refused)} would be refused; nothing was sent`);
  return refused === 0 && notes.sameKeys.different === 0 ? 0 : 1;
}

function report({ verified, ...counts }: Imported, options: ImportOptions, notes: Notes): number {
  sayNotes(notes, options);
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
  if (stopping.signal.aborted) say('stopped; the same command goes on from here');
  process.stdout.write(`${JSON.stringify({ ...counts, ...(verified && { verified }) })}\n`);
  if (stopping.signal.aborted) return 130;
  const isStored = verified === undefined || verified.unknown + verified.waiting === 0;
  return refused === 0 && isStored ? 0 : 1;
}

try {
  const options = readOptions(process.argv.slice(2), process.env);
  const notes = createNotes();
  if (options === undefined) {
    process.stdout.write(`${usage}\n`);
    process.exitCode = process.argv.includes('--help') ? 0 : 1;
  } else if (options.dryRun) {
    process.exitCode = reportDry(await runDry(options, stopping.signal, notes), options, notes);
  } else {
    process.exitCode = report(await runImport(options, stopping.signal, notes), options, notes);
  }
} catch (error) {
  if (!(error instanceof ImportError)) throw error;
  say(error.message);
  process.exitCode = stopping.signal.aborted ? 130 : 1;
}
