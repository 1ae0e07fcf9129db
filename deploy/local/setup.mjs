// What a fresh clone needs before anything of ours runs: the right Node, the packages of the lock file, a redis-server. Each step is silent
// when there is nothing to do. If a step fails, it ends the process with one line that says what to do. Plain JavaScript without
// dependencies, since it runs before packages are installed.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, isBuilt } from '../build.mjs';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../..');

/** Prints to stderr, since the stdout of a command is for its result. */
export function say(line) {
  process.stderr.write(`sluice: ${line}\n`);
}

export function fail(line) {
  say(line);
  process.exit(1);
}

/** uWebSockets.js is a native module with a binary for each of these versions. */
export function requireNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major === 22 || major === 24 || (major === 20 && minor >= 12)) return;
  fail(`needs Node 22, Node 24 or a Node 20 from 20.12 on; this is ${process.versions.node}`);
}

/** Ends the process if the binary of uWebSockets.js for this Node cannot be loaded: the one for Node 24 needs a newer glibc. */
export function requireFront() {
  const fault = frontFault();
  if (fault !== undefined) fail(fault);
}

/** Why the binary cannot be loaded; undefined if it can. The parameters are for tests. */
export function frontFault(
  load = () => createRequire(import.meta.url)('uWebSockets.js'),
  major = process.versions.node.split('.')[0],
  glibc = process.report.getReport().header.glibcVersionRuntime,
) {
  try {
    load();
    return undefined;
  } catch (error) {
    const [, needed] = /GLIBC_([\d.]+)' not found/.exec(String(error)) ?? [];
    if (needed === undefined) return `uWebSockets.js does not load: ${String(error).split('\n').at(-1)}`;
    return `Node ${major} needs glibc ${needed}; this system has ${glibc}: use Node 22`;
  }
}

/** Installs the packages of package-lock.json if they are missing or differ. */
export function installPackages() {
  if (packagesInstalled()) return;
  say('installing packages (npm ci)');
  const npm = process.env.npm_execpath?.endsWith('.js')
    ? [process.execPath, process.env.npm_execpath]
    : ['npm'];
  const [command, ...args] = [...npm, 'ci', '--include=dev', '--include=optional', '--no-audit', '--no-fund'];
  const installed = spawnSync(command, [...args, '--loglevel=error'], { cwd: root, stdio: ['ignore', 2, 2] });
  if (installed.error?.code === 'ENOENT') fail('npm is missing: install Node with npm');
  if (installed.status !== 0) fail('the packages could not be installed: npm ci failed, see above');
}

/** When npm has finished, it leaves a copy of the lock file in node_modules; this compares the two files. */
function packagesInstalled() {
  const record = join(root, 'node_modules/.package-lock.json');
  if (!existsSync(record)) return false;
  const installed = JSON.parse(readFileSync(record, 'utf8')).packages;
  const wanted = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages;
  return isInstalled(wanted, installed, (path) => existsSync(join(root, path)));
}

/**
 * Whether every package of one lock file is listed in the other one and installed. An optional package may be missing if it exists only for
 * some platforms, or if nothing that is installed depends on it.
 */
export function isInstalled(wanted, installed, exists) {
  const needed = new Set(
    [wanted[''] ?? {}, ...Object.values(installed)].flatMap(({ dependencies, optionalDependencies }) =>
      Object.keys({ ...dependencies, ...optionalDependencies }),
    ),
  );
  return Object.entries(wanted).every(
    ([path, { version, integrity, optional, devOptional, os, cpu, libc }]) => {
      if (path === '') return true;
      const found = installed[path];
      if (found !== undefined) {
        return found.version === version && found.integrity === integrity && exists(path);
      }
      const isOptional = optional === true || devOptional === true;
      const name = path.replace(/^.*node_modules\//, '');
      return isOptional && ((os ?? cpu ?? libc) !== undefined || !needed.has(name));
    },
  );
}

/** Installs Debian's redis-server when there is none. */
export function installRedis() {
  installPrograms([
    {
      program: 'redis-server',
      package: 'redis-server',
      otherwise: ', or set REDIS_URL to a Redis that runs already',
    },
  ]);
}

/** Installs the Debian packages of the missing programs, all with one command. `otherwise`: what else the user can do. */
export function installPrograms(wanted) {
  const missing = wanted.filter(({ program }) => !onPath(program));
  if (missing.length === 0) return;
  const programs = missing.map(({ program }) => program).join(', ');
  const packages = missing.map((each) => each.package);
  const is = missing.length === 1 ? 'is' : 'are';
  const byHand = `install the package${missing.length === 1 ? '' : 's'} ${packages.join(', ')}${missing[0].otherwise ?? ''}`;
  if (!onPath('apt-get')) fail(`${programs} ${is} missing: ${byHand}`);
  if (!mayBeRoot()) fail(`${programs} ${is} missing, and installing needs root: ${byHand}`);
  say(`installing ${packages.join(', ')} (apt-get)`);
  const apt = (...args) => runAsRoot(['apt-get', '-qq', '-o', 'DPkg::Lock::Timeout=120', ...args]);
  // A fresh container has no package lists, and an old one has outdated ones.
  const install = () => apt('install', '--yes', '--no-install-recommends', ...packages);
  if (!install() && !(apt('update') && install())) fail(`${programs} could not be installed: ${byHand}`);
  const still = missing.filter(({ program }) => !onPath(program)).map(({ program }) => program);
  if (still.length > 0) fail(`${still.join(', ')} ${is} still missing: ${byHand}`);
}

/** Compiles what changed. Ends the process if there are errors, which the compiler has printed. */
export async function buildOrExit() {
  if (isBuilt()) return;
  say('building');
  if (!(await build())) fail('the build failed, see above');
}

/** Whether commands can run as root without a password prompt. */
function mayBeRoot() {
  return isRoot() || spawnSync('sudo', ['-n', 'true'], { stdio: 'ignore' }).status === 0;
}

function isRoot() {
  return process.getuid?.() === 0;
}

/** Runs an apt-get command as root, without its questions. Returns whether it succeeded. */
export function runAsRoot(command) {
  return run([...(isRoot() ? [] : ['sudo', '-n']), 'env', 'DEBIAN_FRONTEND=noninteractive', ...command]);
}

/** Runs a command with its output on stderr. Returns whether it succeeded. */
export function run([command, ...args], { cwd } = {}) {
  return spawnSync(command, args, { cwd, stdio: ['ignore', 2, 2] }).status === 0;
}

/** Whether a program is on the PATH or in `otherFolder`. */
export function onPath(program, otherFolder = '') {
  return [...(process.env.PATH ?? '').split(delimiter), otherFolder].some(
    (folder) => folder !== '' && existsSync(join(folder, program)),
  );
}
