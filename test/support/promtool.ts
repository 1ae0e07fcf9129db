// Runs Prometheus's own checks of its files.

import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { tempDir } from '../harness/temp-dir.js';
import { root } from './deploy-file.js';

/** The folder where deploy/local/unpack.mjs unpacks promtool. */
const unpackedDir = join(root, 'node_modules/.cache/sluice');

/** Runs promtool in a folder; returns its output and whether it found no fault. */
export function promtool(cwd: string, ...args: readonly string[]): { status: number; said: string } {
  const folders = [...(process.env.PATH ?? '').split(delimiter), unpackedDir];
  const program = folders.map((folder) => join(folder, 'promtool')).find((path) => existsSync(path));
  if (program === undefined) {
    throw new Error(
      'promtool is missing: "npm test -- deploy" fetches it, or install the package prometheus',
    );
  }
  const { status, stdout, stderr } = spawnSync(program, args, { cwd, encoding: 'utf8' });
  return { status: status ?? -1, said: `${stdout}${stderr}` };
}

/** Checks expressions by promtool, as those of recording rules. */
export function checkExpressions(expressions: readonly string[]): { status: number; said: string } {
  const folder = tempDir('expressions');
  const rules = expressions.map((expr, at) => ({ record: `checked:expression:${at}`, expr }));
  // JSON is YAML.
  writeFileSync(join(folder, 'rules.yml'), JSON.stringify({ groups: [{ name: 'checked', rules }] }));
  return promtool(folder, 'check', 'rules', 'rules.yml');
}
