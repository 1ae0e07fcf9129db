// Reads the files of deploy/ for tests.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';

export const root = fileURLToPath(new URL('../../../', import.meta.url));

/** The path of a program, or of a Java library in `more`: on the PATH, or where deploy/local/unpack.mjs unpacks it. */
export function programPath(program: string, more: readonly string[] = []): string {
  const folders = [
    ...(process.env.PATH ?? '').split(delimiter),
    ...more,
    join(root, 'node_modules/.cache/sluice'),
  ];
  const path = folders.map((folder) => join(folder, program)).find((each) => existsSync(each));
  if (path === undefined) throw new Error(`${program} is missing: "npm test -- deploy" fetches it`);
  return path;
}

export function deployPath(...names: readonly string[]): string {
  return join(root, 'deploy', ...names);
}

export function readDeployFile(...names: readonly string[]): string {
  return readFileSync(deployPath(...names), 'utf8');
}

export function listDeployFiles(folder: string, ending: string): string[] {
  return readdirSync(deployPath(folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name))
    .sort();
}

/** Parses all documents of a YAML text; even a warning of the parser fails the test. */
export function parseYaml(text: string, what: string): unknown[] {
  const documents = parseAllDocuments(text, { merge: true, uniqueKeys: true });
  assert.ok(Array.isArray(documents), `${what} is empty`);
  return documents.map((document) => {
    assert.deepEqual([...document.errors, ...document.warnings].map(String), [], what);
    return document.toJS() as unknown;
  });
}

export function readYaml<Document>(...names: readonly string[]): Document {
  const documents = parseYaml(readDeployFile(...names), names.join('/'));
  assert.equal(documents.length, 1, names.join('/'));
  return documents[0] as Document;
}

/** The lines `NAME=value` of an environment file, without comments and empty lines. */
export function readEnvironment(...names: readonly string[]): Record<string, string> {
  const lines = readDeployFile(...names)
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, value] = /^([A-Z_]+)=(.*)$/.exec(line) ?? [];
      assert.ok(name !== undefined && value !== undefined, `${names.join('/')}: ${line}`);
      return [name, value];
    }),
  );
}
