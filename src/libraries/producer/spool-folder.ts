// The folder of a spool: who owns it, and how its files are named. It belongs to one process at a time. A claim is a file `owner.<number>`
// that identifies a process by its id and its start time, since ids are reused: in a container every process may have the id 1.

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
import { producerLimits as limits } from './limits.js';

/** The folders of this process, each with the name of its claim. */
const ownFolders = new Map<string, string>();

/** Claims a folder. Throws if a running process owns it, or if it cannot be written to. */
export function claimFolder(folder: string): void {
  const path = resolve(folder);
  if (ownFolders.has(path)) throw new Error(`the spool ${path} is already in use by this process`);
  mkdirSync(path, { recursive: true, mode: 0o700 });
  takeFolder(path, findClaims(path));
}

type Claim = { readonly name: string; readonly number: number; readonly owner: string };

/** The claims in a folder, including those of processes that are gone. */
export function findClaims(path: string): Claim[] {
  return readdirSync(path).flatMap((name) => {
    const number = Number(/^owner\.(\d+)$/.exec(name)?.[1] ?? Number.NaN);
    const owner = Number.isNaN(number) ? undefined : readOwner(join(path, name));
    return owner === undefined ? [] : [{ name, number, owner }];
  });
}

/**
 * Claims a folder in which these claims were found. Of processes that found the same claims, only one can write the next number. A late
 * process may write a number that is free again, so each process reads all claims after it has written its own: of two running processes,
 * at least the later one sees the other, and gives way.
 */
export function takeFolder(path: string, found: readonly Claim[]): void {
  refuse(path, found);
  const name = `owner.${Math.max(0, ...found.map(({ number }) => number)) + 1}`;
  const own = join(path, name);
  writeClaim(path, own);
  const others = findClaims(path).filter((claim) => claim.name !== name);
  try {
    refuse(path, others);
  } catch (error) {
    rmSync(own, { force: true });
    throw error;
  }
  for (const other of others) rmSync(join(path, other.name), { force: true });
  ownFolders.set(path, name);
}

function refuse(path: string, claims: readonly Claim[]): void {
  const living = claims.find(({ owner }) => isAlive(owner));
  if (living !== undefined)
    throw new Error(`the spool ${path} is in use by process ${living.owner.split(' ')[0]}`);
}

function writeClaim(path: string, name: string): void {
  let file: number;
  try {
    file = openSync(name, 'wx', 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new Error(`the spool ${path} is in use by a process that came at the same time`);
  }
  try {
    writeSync(file, `${identityOf(process.pid) ?? process.pid}\n`);
  } catch (error) {
    rmSync(name, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
}

export function releaseFolder(folder: string): void {
  const path = resolve(folder);
  const name = ownFolders.get(path);
  if (name !== undefined) rmSync(join(path, name), { force: true });
  ownFolders.delete(path);
}

/** The process that made a claim; undefined if the claim is gone. */
function readOwner(file: string): string | undefined {
  for (let looks = 0; ; looks++) {
    const text = readText(file);
    // The claim may be incomplete because it is being written. If its process was killed, it stays incomplete.
    if (text === undefined || text.endsWith('\n') || looks === limits.claimLooksMax) return text?.trim();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, limits.claimLookMs);
  }
}

function isAlive(owner: string): boolean {
  const pid = Number(owner.split(' ')[0]);
  if (!Number.isSafeInteger(pid) || pid < 1) return false;
  const now = identityOf(pid);
  if (now !== undefined) return now === owner;
  // Without /proc, as on macOS, any running process with that id counts as the owner. The id may be ours, after a restart.
  return pid !== process.pid && answersSignals(pid);
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

/** The id of a process, its start in ticks since the boot, and the boot; undefined if it is not running, or without /proc. */
function identityOf(pid: number): string | undefined {
  const stat = readText(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  // The name may contain blanks and brackets. After it come the state and, as the 20th field, the start.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  // A zombie: its parent has not collected its exit status, which a container's first process may never do.
  if (/^[ZX]$/.test(fields[0] ?? '')) return undefined;
  return `${pid} ${fields[19]} ${readText('/proc/sys/kernel/random/boot_id')?.trim()}`;
}

/**
 * The text of a file; undefined if there is none, or if its process has ended. Throws otherwise, since the claim may be that of a running
 * process.
 */
function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (!['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    return undefined;
  }
}

const nameForm = /^(\d{12})\.(records|settled)$/;

export function recordsName(number: number): string {
  return `${String(number).padStart(12, '0')}.records`;
}

export function marksName(number: number): string {
  return `${String(number).padStart(12, '0')}.settled`;
}

/**
 * The files of records that an earlier process left, from the oldest. Marks without records are removed: the process was killed while it
 * removed both, and their number may be used again.
 */
export function listSpoolFiles(folder: string): { readonly number: number; readonly bytes: number }[] {
  const numbers: Readonly<Record<string, Set<number>>> = { records: new Set(), settled: new Set() };
  for (const name of readdirSync(folder)) {
    const [, digits, kind = ''] = nameForm.exec(name) ?? [];
    if (digits !== undefined) numbers[kind]?.add(Number(digits));
  }
  const { records = new Set<number>(), settled = new Set<number>() } = numbers;
  for (const number of settled)
    if (!records.has(number)) rmSync(join(folder, marksName(number)), { force: true });
  return [...records]
    .sort((a, b) => a - b)
    .map((number) => ({ number, bytes: statSync(join(folder, recordsName(number))).size }));
}

/** Settled lines as text: `first count.` for each run of lines. The dot shows that the entry was written completely. */
export function marksText(lines: readonly number[]): string {
  const sorted = [...lines].sort((a, b) => a - b);
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
