// `npm test`: sets up what is missing, builds (which checks the types), lints, runs the tests.
// `npm test -- name` runs only the files whose path contains the name, and no lint.
// Plain JavaScript without dependencies, since it runs before packages are installed.

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import {
  buildOrExit,
  fail,
  installPackages,
  installPrograms,
  installRedis,
  requireFront,
  requireNode,
  root,
  say,
} from './setup.mjs';
import { unpackPrograms } from './unpack.mjs';

/** Debian's programs that some tests drive, by the imports that use them. */
const testPrograms = [
  { program: 'chromium', package: 'chromium', usedBy: ['support/browser.js'] },
  { program: 'systemd-analyze', package: 'systemd', usedBy: ['support/systemd.js'] },
  { program: 'curl', package: 'curl', usedBy: ['support/runbook.js', 'support/shell.js'] },
];

/** The same, of packages that would start a service when they are installed. */
const unpackedPrograms = [{ program: 'promtool', package: 'prometheus', usedBy: ['support/promtool.js'] }];

const names = process.argv.slice(2);

requireNode();
installPackages();
requireFront();
installRedis();
const sources = testSources();
const isUsed = ({ usedBy }) => sources.some((path) => usedBy.some((imported) => usesFile(path, imported)));
installPrograms(testPrograms.filter(isUsed));
unpackPrograms(unpackedPrograms.filter(isUsed));
buildOrExit();
if (names.length === 0) lint();
process.exit(runTests(sources.map((path) => join('dist', path.replace(/\.ts$/, '.js')))));

function lint() {
  say('checking style (biome)');
  const biome = join(root, 'node_modules/@biomejs/biome/bin/biome');
  if (runNode([biome, 'check', '--error-on-warnings', '.']) !== 0) fail('the style check failed, see above');
}

/** The test files, from the sources: compiled ones of a source that is gone don't count, nor do helpers. */
function testSources() {
  const files = readdirSync(join(root, 'test'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.test.ts'))
    .map((entry) => relative(root, join(entry.parentPath ?? entry.path, entry.name)))
    .filter((path) => names.length === 0 || names.some((name) => path.includes(name)))
    .sort();
  if (files.length === 0) fail(`no test file's path contains ${names.join(' or ')}`);
  return files;
}

function usesFile(path, imported) {
  return readFileSync(join(root, path), 'utf8').includes(imported);
}

/**
 * One file after another: each starts servers of its own, and what a test measures against a deadline should
 * not depend on what another one does to the machine. A test that hangs is ended instead of the whole run.
 */
function runTests(files) {
  say(`running ${files.length} test file${files.length === 1 ? '' : 's'}`);
  const options = ['--test-reporter=spec', '--test-concurrency=1', `--test-timeout=${15 * 60_000}`];
  return runNode(['--test', ...options, ...files]);
}

function runNode(args) {
  const { status } = spawnSync(process.execPath, args, {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  return status ?? 1;
}
