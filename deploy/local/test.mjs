// `npm test`: sets up what is missing, builds (which checks the types), lints, runs the tests.
// `npm test -- name` runs only the files whose path contains the name, and no lint; `npm run test:quick` runs the files that
// need no deployment, and `npm run test:all` also what `npm test` leaves out (test/runner/lanes.ts). With `--record` a run that
// passes notes how long each file took, for the order of later ones.
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

/** Debian programs that some tests use, each with the import by which its tests are recognised. */
const testPrograms = [
  {
    program: 'chromium-headless-shell',
    package: 'chromium-headless-shell',
    usedBy: ['harness/browser.js'],
  },
  { program: 'systemd-analyze', package: 'systemd', usedBy: ['support/systemd.js'] },
  { program: 'wrk', package: 'wrk', usedBy: ['bench/load/wrk.js', 'byWrk'] },
  { program: 'openssl', package: 'openssl', usedBy: ['support/proxies.js'] },
  { program: 'java', package: 'default-jre-headless', usedBy: ['support/keeper.js'] },
  {
    program: 'curl',
    package: 'curl',
    usedBy: ['support/runbook.js', 'harness/shell.js', "spawnSync('curl'"],
  },
];

/** Programs whose packages would start a service when installed. */
const unpackedPrograms = [
  { program: 'promtool', package: 'prometheus', usedBy: ['support/promtool.js'] },
  { program: 'prometheus', package: 'prometheus', usedBy: ['support/alerting.js'] },
  { program: 'prometheus-alertmanager', package: 'prometheus-alertmanager', usedBy: ['support/alerting.js'] },
  { program: 'nginx', package: 'nginx', usedBy: ['support/proxies.js'] },
  { program: 'caddy', package: 'caddy', usedBy: ['support/proxies.js'] },
  { program: 'kubectl', package: 'kubernetes-client', usedBy: ['support/kubectl.js'] },
  { program: 'zookeeper.jar', package: 'libzookeeper-java', usedBy: ['support/keeper.js'] },
  { program: 'zookeeper-jute.jar', package: 'libzookeeper-java', usedBy: ['support/keeper.js'] },
  { program: 'slf4j-api.jar', package: 'libslf4j-java', usedBy: ['support/keeper.js'] },
  { program: 'metrics-core.jar', package: 'libdropwizard-metrics-java', usedBy: ['support/keeper.js'] },
  { program: 'snappy-java.jar', package: 'libsnappy-java', usedBy: ['support/keeper.js'] },
];

const options = process.argv.slice(2).filter((argument) => argument.startsWith('--'));
const names = process.argv.slice(2).filter((argument) => !argument.startsWith('--'));
const unknown = options.find((option) => !['--quick', '--all', '--record'].includes(option));
if (unknown !== undefined) fail(`no option ${unknown}: there are --quick, --all and --record`);

requireNode();
installPackages();
requireFront();
installRedis();
const all = testSources();
await buildOrExit();
if (names.length === 0) lint();
const { isQuick, isThorough, runFiles } = await import('../../dist/test/runner/run.js');
const isUsual = !options.includes('--all') && names.length === 0;
const isWanted = (path) => {
  if (options.includes('--quick')) return isQuick(path);
  return !isUsual || !isThorough(path);
};
if (isUsual) process.env.TEST_TIER = 'usual';
const sources = all.filter(isWanted);
const uses =
  (paths) =>
  ({ usedBy }) =>
    paths.some((path) => usedBy.some((imported) => usesFile(path, imported)));
// Such a program would never be installed, and its tests would be skipped.
const unused = [...testPrograms, ...unpackedPrograms].find(
  (program) => names.length === 0 && !uses(all)(program),
);
if (unused !== undefined) fail(`no test uses ${unused.program}`);
const isUsed = uses(sources);
installPrograms(testPrograms.filter(isUsed));
unpackPrograms(unpackedPrograms.filter(isUsed));
const compiled = (path) => join('dist', path.replace(/\.ts$/, '.js'));
const files = sources.map(compiled);
say(`running ${files.length} test file${files.length === 1 ? '' : 's'}`);
const sharing = await whatIsShared();
process.exitCode = await runFiles({ root, files, sharing, record: options.includes('--record') });
const { cpuSeconds } = await import('../../dist/test/runner/reporter.js');
say(`took ${Math.round(cpuSeconds() ?? 0)} s of the CPU`);

/** The files that share a deployment, if several of them run. */
async function whatIsShared() {
  const sharing = sources.filter((path) => usesFile(path, 'sharedSluice(') || usesFile(path, 'ownApi('));
  if (sharing.length < 2) return undefined;
  const { shareSluice } = await import('../../dist/test/runner/share-sluice.js');
  return { files: sharing.map(compiled), start: shareSluice };
}

function lint() {
  say('checking style (biome)');
  const biome = join(root, 'node_modules/@biomejs/biome/bin/biome');
  if (runNode([biome, 'check', '--error-on-warnings', '.']) !== 0) fail('the style check failed, see above');
}

/** The test files, derived from their sources. Leaves out compiled files whose source is gone, and helpers. */
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

function runNode(args) {
  const { status } = spawnSync(process.execPath, args, {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  return status ?? 1;
}
