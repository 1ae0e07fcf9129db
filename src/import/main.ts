// `npm run import -- …`: wiring and exit codes. 0: every row is stored. 1: some were refused, or the import could not go on.
// 130: it was stopped, and the same command goes on where it was.

import { ImportError, readOptions, usage } from './options.js';
import { type DryRun, type Imported, runDry, runImport } from './run.js';

const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopping.abort());

const number = (count: number) => count.toLocaleString('en');

function say(...lines: readonly string[]): void {
  for (const line of lines) process.stderr.write(`import: ${line}\n`);
}

function sayMended(mended: Readonly<Record<string, number>>): void {
  const words = Object.entries(mended).map(([name, count]) => `${name} ${number(count)}`);
  if (words.length > 0) say(`mended: ${words.join(', ')}`);
}

function reportDry({ read, refused, first, faults, mended }: DryRun): number {
  for (const record of first) process.stdout.write(`${record}\n`);
  for (const [fault, { count, places }] of faults)
    say(`${number(count)} × ${fault} (${places.join(', ')}${count > places.length ? ', …' : ''})`);
  sayMended(mended);
  say(`dry run: ${number(read)} rows read, ${number(refused)} would be refused; nothing was sent`);
  return refused === 0 ? 0 : 1;
}

function report({ mended, ...counts }: Imported, rejectsFile: string): number {
  sayMended(mended);
  const { read, stored, repeats, refused } = counts;
  const before = repeats === 0 ? '' : `, ${number(repeats)} were stored before`;
  say(`${number(read)} rows read, ${number(stored)} stored${before}, ${number(refused)} refused`);
  if (refused > 0) say(`the refused rows are in ${rejectsFile}, each with its reason`);
  if (stopping.signal.aborted) say('stopped; the same command goes on from here');
  process.stdout.write(`${JSON.stringify(counts)}\n`);
  if (stopping.signal.aborted) return 130;
  return refused === 0 ? 0 : 1;
}

try {
  const options = readOptions(process.argv.slice(2), process.env);
  if (options === undefined) {
    process.stdout.write(`${usage}\n`);
    process.exitCode = process.argv.includes('--help') ? 0 : 1;
  } else if (options.dryRun) {
    process.exitCode = reportDry(await runDry(options, stopping.signal));
  } else {
    process.exitCode = report(await runImport(options, stopping.signal), options.rejectsFile);
  }
} catch (error) {
  if (!(error instanceof ImportError)) throw error;
  say(error.message);
  process.exitCode = 1;
}
