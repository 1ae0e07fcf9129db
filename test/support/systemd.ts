// Runs systemd's own checks of unit files, without a running systemd.

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempDir } from '../harness/temp-dir.js';
import { deployPath } from './deploy-file.js';

export function listUnits(): string[] {
  return readdirSync(deployPath('systemd'))
    .filter((name) => /\.(service|target)$/.test(name))
    .sort();
}

/**
 * Copies the units into a folder, and returns it. They get the path of this machine's node, since a command that does not exist is an
 * error; `change` may change the text of each further.
 */
export function copyUnits(change: (text: string) => string = (text) => text): string {
  const folder = tempDir('units');
  for (const name of listUnits()) {
    const text = readFileSync(deployPath('systemd', name), 'utf8').replaceAll(
      '/usr/bin/node',
      process.execPath,
    );
    writeFileSync(join(folder, name), change(text));
  }
  return folder;
}

/** Runs systemd-analyze in a folder of units; returns its output and whether it found no fault. */
export function systemdAnalyze(folder: string, ...args: readonly string[]): { status: number; said: string } {
  const { status, stdout, stderr, error } = spawnSync('systemd-analyze', args, {
    cwd: folder,
    encoding: 'utf8',
  });
  if (error !== undefined) {
    throw new Error(
      'systemd-analyze is missing: "npm test -- deploy" installs it, or install the package systemd',
    );
  }
  return { status: status ?? -1, said: `${stdout}${stderr}` };
}

export function valuesOf(unit: string, directive: string): string[] {
  const text = readFileSync(deployPath('systemd', unit), 'utf8');
  return text
    .split('\n')
    .filter((line) => line.startsWith(`${directive}=`))
    .map((line) => line.slice(directive.length + 1));
}
