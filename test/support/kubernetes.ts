// Reads the Kubernetes manifests and checks them with types and validators that are generated from Kubernetes's own
// OpenAPI document. The validators check values but accept unknown fields; the types find those.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { tempDir } from '../harness/temp-dir.js';
import { listDeployFiles, parseYaml, readDeployFile, root } from './deploy-file.js';

export type Labels = Readonly<Record<string, string>>;

export type Manifest = {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly labels?: Labels };
};

/** Every object of the folder, except kustomize's own file. */
export function readManifests(): (Manifest & { readonly file: string })[] {
  return listDeployFiles('kubernetes', '.yaml')
    .filter((file) => !file.endsWith('kustomization.yaml'))
    .flatMap((file) =>
      parseYaml(readDeployFile(file), file).map((document) => ({ ...(document as Manifest), file })),
    );
}

const require = createRequire(import.meta.url);

export function findInvalid({ apiVersion, kind, ...rest }: Manifest): string[] {
  const module = require(`kubernetes-models/${apiVersion}`) as Record<
    string,
    (new (data: object) => { validate(): void }) | undefined
  >;
  const Model = module[kind];
  if (Model === undefined) return [`there is no kind ${kind} in ${apiVersion}`];
  try {
    new Model({ apiVersion, kind, ...rest }).validate();
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

/** Compiles the objects as literals of their types; returns the compiler's errors about wrong and unknown fields. */
export function findMistyped(manifests: readonly Manifest[]): string {
  const folder = tempDir('manifests');
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  const literals = manifests.map(
    ({ apiVersion, kind, ...rest }, at) =>
      `export const m${at}: import('kubernetes-models/${apiVersion}').I${kind} = ${JSON.stringify({ apiVersion, kind, ...rest }, null, 1)};`,
  );
  writeFileSync(join(folder, 'manifests.ts'), literals.join('\n'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const options = '--noEmit --strict --skipLibCheck --module nodenext --target es2022 --types --pretty false';
  const args = [...options.split(' '), 'manifests.ts'];
  args.splice(args.indexOf('--types') + 1, 0, '');
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  const { stdout, stderr } = spawnSync(process.execPath, [compiler, ...args], {
    cwd: folder,
    encoding: 'utf8',
  });
  return `${stdout}${stderr}`;
}

export function selects(selector: Labels | undefined, labels: Labels | undefined): boolean {
  assert.ok(selector !== undefined && Object.keys(selector).length > 0, 'a selector selects by something');
  return Object.entries(selector).every(([name, value]) => labels?.[name] === value);
}
