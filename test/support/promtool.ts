// Runs Prometheus's own checks of its files.

import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempDir } from '../harness/temp-dir.js';
import { programPath } from './deploy-file.js';

/** Runs promtool in a folder; returns its output and whether it found no fault. */
export function promtool(cwd: string, ...args: readonly string[]): { status: number; said: string } {
  const { status, stdout, stderr } = spawnSync(programPath('promtool'), args, { cwd, encoding: 'utf8' });
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
