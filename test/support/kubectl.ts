// Runs those commands of kubectl that need no cluster.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { parseYaml, root } from './deploy-file.js';
import type { Manifest } from './kubernetes.js';

/** The folder where deploy/local/unpack.mjs unpacks kubectl. */
const unpackedDir = join(root, 'node_modules/.cache/sluice');

/** What `kubectl apply -k` of a folder would apply. */
export function kustomize(folder: string): Manifest[] {
  const folders = [...(process.env.PATH ?? '').split(delimiter), unpackedDir];
  const program = folders.map((each) => join(each, 'kubectl')).find((path) => existsSync(path));
  assert.ok(
    program,
    'kubectl is missing: "npm test -- deploy" fetches it, or install the package kubernetes-client',
  );
  const { status, stdout, stderr } = spawnSync(program, ['kustomize', folder], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return parseYaml(stdout, 'kustomize') as Manifest[];
}
