// Runs those commands of kubectl that need no cluster.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { parseYaml, programPath } from './deploy-file.js';
import type { Manifest } from './kubernetes.js';

/** What `kubectl apply -k` of a folder would apply. */
export function kustomize(folder: string): Manifest[] {
  const program = programPath('kubectl');
  const { status, stdout, stderr } = spawnSync(program, ['kustomize', folder], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return parseYaml(stdout, 'kustomize') as Manifest[];
}
