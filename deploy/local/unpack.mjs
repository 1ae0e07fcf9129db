// Extracts a single program, or a Java library, from a Debian package without installing the package, which would start a service. Needs no
// root, unless the package lists are missing. Silent when there is nothing to do. If it fails, it ends the process with one line that says
// what to do. Plain JavaScript without dependencies, since it runs before anything is built.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fail, onPath, root, run, runAsRoot, say } from './setup.mjs';

/** The folder for these programs; tests look for them on the PATH and here. Reinstalling packages removes it. */
export const unpackedDir = join(root, 'node_modules/.cache/sluice');

/** Extracts every program of `wanted` that is neither on the PATH nor already extracted. */
export function unpackPrograms(wanted, into = unpackedDir) {
  for (const each of wanted) if (!onPath(each.program, into)) unpack(each, into);
}

function unpack({ program, package: name }, into) {
  const byHand = `install the package ${name}, or put ${program} on the PATH`;
  if (!onPath('apt-get') || !onPath('dpkg-deb')) fail(`${program} is missing: ${byHand}`);
  say(`fetching ${program} (apt-get download ${name})`);
  mkdirSync(into, { recursive: true });
  const folder = mkdtempSync(join(into, 'unpack-'));
  const file = download(name, folder);
  const unpacked = file !== undefined && run(['dpkg-deb', '-x', file, 'content'], { cwd: folder });
  const found = ['usr/bin', 'usr/sbin', 'usr/share/java']
    .map((at) => join(folder, 'content', at, program))
    .find(existsSync);
  if (unpacked && found !== undefined) renameSync(found, join(into, program));
  rmSync(folder, { recursive: true, force: true });
  if (!unpacked || found === undefined) fail(`${program} could not be fetched: ${byHand}`);
}

/** Downloads the package's file into the folder and returns its name; undefined if that is not possible. */
function download(name, folder) {
  // By default apt-get downloads as a separate user, who may not write here.
  const command = ['apt-get', '-qq', '-o', 'APT::Sandbox::User=root', 'download', name];
  // A fresh container has no package lists, an old one has stale ones.
  if (!run(command, { cwd: folder })) {
    runAsRoot(['apt-get', '-qq', 'update']);
    run(command, { cwd: folder });
  }
  return readdirSync(folder).find((entry) => entry.endsWith('.deb'));
}
