// The folder of a spool: who owns it, and what its files are called. It belongs to one process at a time, named in `owner`
// by its id and the time of its start, since ids come again. In a container every process may have the id 1.

import {
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';

/** Of this process: two clients of it must not share a folder either. */
const ownFolders = new Set<string>();

/** Throws when a process that lives owns the folder, or when it cannot be written. */
export function claimFolder(folder: string): void {
  const path = resolve(folder);
  if (ownFolders.has(path)) throw new Error(`the spool ${path} is in use by this process already`);
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const owner = readOwner(path);
  if (owner !== undefined && owner !== identityOf(process.pid) && isAlive(owner)) {
    throw new Error(`the spool ${path} is in use by process ${owner.split(' ')[0]}`);
  }
  rmSync(join(path, 'owner'), { force: true });
  // Of processes that come at the same time one wins.
  const file = openSync(join(path, 'owner'), 'wx', 0o600);
  writeSync(file, identityOf(process.pid) ?? String(process.pid));
  closeSync(file);
  ownFolders.add(path);
}

export function releaseFolder(folder: string): void {
  const path = resolve(folder);
  rmSync(join(path, 'owner'), { force: true });
  ownFolders.delete(path);
}

function readOwner(path: string): string | undefined {
  return readText(join(path, 'owner'))?.trim();
}

function isAlive(owner: string): boolean {
  const pid = Number(owner.split(' ')[0]);
  if (!Number.isSafeInteger(pid) || pid < 1 || pid === process.pid) return false;
  const now = identityOf(pid);
  // Without /proc, as on macOS, an id that is in use counts as the owner.
  return now === undefined ? answersSignals(pid) : now === owner;
}

function answersSignals(pid: number): boolean {
  if (readText('/proc/self/stat') !== undefined) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** The id of a process, its start in ticks since the boot, and the boot; undefined if there is none, or no /proc. */
function identityOf(pid: number): string | undefined {
  const stat = readText(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  // After the name, which may hold blanks and brackets, the start is the 20th field.
  const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  return `${pid} ${started} ${readText('/proc/sys/kernel/random/boot_id')?.trim()}`;
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

const nameForm = /^(\d{12})\.records$/;

export function recordsName(number: number): string {
  return `${String(number).padStart(12, '0')}.records`;
}

export function marksName(number: number): string {
  return `${String(number).padStart(12, '0')}.settled`;
}

/** The files of records that an earlier process left, the oldest first. */
export function listSpoolFiles(folder: string): { readonly number: number; readonly bytes: number }[] {
  return readdirSync(folder)
    .map((name) => nameForm.exec(name)?.[1])
    .filter((digits) => digits !== undefined)
    .map((digits) => ({
      number: Number(digits),
      bytes: statSync(join(folder, recordsName(Number(digits)))).size,
    }))
    .sort((a, b) => a.number - b.number);
}

/** Settled lines as a text: `first count.` for each run. The dot shows that it was written to its end. */
export function marksText(lines: readonly number[]): string {
  const sorted = lines.toSorted((a, b) => a - b);
  let text = '';
  for (let at = 0; at < sorted.length; ) {
    const first = sorted[at] as number;
    let count = 1;
    while (sorted[at + count] === first + count) count++;
    text += `\n${first} ${count}.`;
    at += count;
  }
  return text;
}

/** The settled lines of a file of records. */
export async function readMarks(folder: string, number: number): Promise<ReadonlySet<number>> {
  const settled = new Set<number>();
  const text = await readFile(join(folder, marksName(number)), 'utf8').catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  });
  for (const [, first, count] of text.matchAll(/^(\d+) (\d+)\.$/gm)) {
    for (let line = 0; line < Number(count); line++) settled.add(Number(first) + line);
  }
  return settled;
}
