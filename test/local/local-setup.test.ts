// What `npm start` and `npm test` do on a machine where something is missing.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { greeting } from '../../deploy/local/greeting.js';
import { lockDataDir } from '../../deploy/local/lock.js';
import { findOrMakeSecret } from '../../deploy/local/secrets.js';
import { readConfig } from '../../src/config.js';
import { redisSocket } from '../../src/config-redis.js';
import { canMount, createSmallDisk } from '../chaos/small-disk.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

const setupScript = fileURLToPath(new URL('../../../deploy/local/setup.mjs', import.meta.url));

function setUp(path: string, call: string): { status: number | null; stderr: string } {
  const code = `import(${JSON.stringify(setupScript)}).then((setup) => setup.${call})`;
  const { status, stderr } = spawnSync(process.execPath, ['-e', code], {
    env: { PATH: path },
    encoding: 'utf8',
  });
  return { status, stderr };
}

test('a secret is made only once, again if its file is empty, but never in place of one that cannot be read', () => {
  const dir = tempDir('secrets');
  const file = join(dir, 'secret');
  const secret = findOrMakeSecret(file);
  assert.equal(findOrMakeSecret(file), secret);
  writeFileSync(file, '');
  const next = findOrMakeSecret(file);
  assert.match(next, /^[\w-]{32}$/);
  assert.equal(findOrMakeSecret(file), next);
  mkdirSync(join(dir, 'unreadable'));
  assert.throws(() => findOrMakeSecret(join(dir, 'unreadable')), /EISDIR/);
});

test('Redis has a socket only where its path is not too long for one', () => {
  const longest = `/${'a'.repeat(107 - '//redis/redis.sock'.length)}`;
  assert.equal(redisSocket(longest), `${longest}/redis/redis.sock`);
  assert.equal(redisSocket(`${longest}a`), undefined);
});

test('where the system has no locks, a DATA_DIR is not taken while its lock is half written', async () => {
  const dir = tempDir('lock');
  const file = join(dir, 'lock');
  writeFileSync(file, '{"supervisor":{"name":"sup');
  const { PATH } = process.env;
  // Hides flock(1).
  process.env.PATH = '';
  try {
    const said: string[] = [];
    const locking = lockDataDir(dir, (line) => said.push(line));
    await until(() => said.length > 0, 'it waits');
    assert.match(readFileSync(file, 'utf8'), /^\{"supervisor":\{"name":"sup$/);
    writeFileSync(file, '');
    (await locking).release();
  } finally {
    process.env.PATH = PATH;
  }
});

test('a DATA_DIR on a full disk is locked, and its children are listed once there is room', {
  skip: !canMount(),
}, async (t) => {
  const disk = createSmallDisk();
  t.after(disk.remove);
  disk.fill();
  const lock = await lockDataDir(disk.dir, assert.fail);
  t.after(lock.release);
  lock.note('first', process.pid);
  const file = join(disk.dir, 'lock');
  assert.equal(spawnSync('flock', ['-n', file, 'true']).status, 1);
  disk.free();
  lock.note('second', process.pid);
  const { children } = JSON.parse(readFileSync(file, 'utf8')) as { children: unknown[] };
  assert.equal(children.length, 2);
});

describe('packages', () => {
  type Package = {
    version?: string;
    optional?: boolean;
    os?: string[];
    optionalDependencies?: Record<string, string>;
  };
  type Packages = Record<string, Package>;

  async function isInstalled(wanted: Packages, installed: Packages): Promise<boolean> {
    const setup = (await import(setupScript)) as {
      isInstalled(wanted: Packages, installed: Packages, exists: () => boolean): boolean;
    };
    return setup.isInstalled(wanted, installed, () => true);
  }

  const one = { version: '1.0.0' };

  test('are installed when they are as the lock file says', async () => {
    assert.equal(await isInstalled({ '': one, a: one }, { a: one }), true);
    assert.equal(await isInstalled({ a: one }, {}), false);
    assert.equal(await isInstalled({ a: one }, { a: { version: '2.0.0' } }), false);
  });

  test('optional ones for other machines may be absent; new ones in the lock file are installed', async () => {
    const optional = { ...one, optional: true };
    assert.equal(await isInstalled({ a: { ...optional, os: ['darwin'] } }, {}), true);
    const root = { optionalDependencies: { a: '1.0.0' } };
    assert.equal(await isInstalled({ '': root, a: optional }, {}), false);
  });

  test('that are optional may be absent if only absent packages depend on them', async () => {
    const optional = { ...one, optional: true };
    const binding = { ...optional, os: ['wasm'], optionalDependencies: { b: '1.0.0' } };
    const wanted = { '': { optionalDependencies: { a: '1.0.0' } }, a: binding, b: optional };
    assert.equal(await isInstalled(wanted, {}), true);
    assert.equal(
      await isInstalled({ ...wanted, a: { ...binding, os: [] } }, { a: { ...binding, os: [] } }),
      false,
    );
  });
});

describe('the front of this Node', () => {
  async function frontFault(error: Error | undefined): Promise<string | undefined> {
    const setup = (await import(setupScript)) as {
      frontFault(load: () => void, major: string, glibc: string): string | undefined;
    };
    return setup.frontFault(
      () => {
        if (error !== undefined) throw error;
      },
      '24',
      '2.36',
    );
  }

  test('is not mentioned if it loads', async () => {
    assert.equal(await frontFault(undefined), undefined);
    assert.equal(setUp(process.env.PATH ?? '', 'requireFront()').stderr, '');
  });

  test('gets one line that asks for a newer glibc or another Node', async () => {
    const error = new Error(
      "This version supports only …\n\nError: libc.so.6: version `GLIBC_2.38' not found (required by uws.node)",
    );
    assert.equal(await frontFault(error), 'Node 24 needs glibc 2.38; this system has 2.36: use Node 22');
  });

  test('gets one line with the error if something else is wrong', async () => {
    const error = new Error('This version supports only …\n\nError: Cannot find module uws.node');
    assert.equal(await frontFault(error), 'uWebSockets.js does not load: Error: Cannot find module uws.node');
  });
});

describe('setting up what the system has to bring', () => {
  function installRedis(path: string): { status: number | null; stderr: string } {
    return setUp(path, 'installRedis()');
  }

  function folderWith(scripts: Record<string, string>): string {
    const folder = tempDir('path');
    for (const [name, script] of Object.entries(scripts)) {
      writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
      chmodSync(join(folder, name), 0o755);
    }
    return folder;
  }

  test('does nothing when it is there', () => {
    assert.deepEqual(installRedis(folderWith({ 'redis-server': '' })), { status: 0, stderr: '' });
  });

  test('names the package when there is no apt-get', () => {
    const { status, stderr } = installRedis(folderWith({}));
    assert.equal(status, 1);
    assert.match(stderr, /^sluice: redis-server is missing: install the package redis-server, .*\n$/);
  });

  test('installs it with apt-get, after updating the package lists when the first try fails', () => {
    const folder = folderWith({
      sudo: 'shift; exec "$@"',
      'apt-get': [
        'echo "$@" >> "$0.log"',
        'case "$*" in *update*) : > "$0.updated";; esac',
        '[ -e "$0.updated" ] || exit 100',
        'case "$*" in *install*) : > "$(dirname "$0")/redis-server";; esac',
      ].join('\n'),
    });
    const { status, stderr } = installRedis(`${folder}:${shellTools()}`);
    assert.equal(status, 0, stderr);
    assert.equal(stderr, 'sluice: installing redis-server (apt-get)\n');
    const calls = readFileSync(join(folder, 'apt-get.log'), 'utf8').trim().split('\n');
    assert.deepEqual(
      calls.map((call) => /install|update/.exec(call)?.[0]),
      ['install', 'update', 'install'],
    );
  });

  test('names all programs of the tests that are missing in one line', () => {
    const wanted = ['chromium', 'strace', 'true'].map((program) => ({
      program,
      package: `${program}-package`,
    }));
    const { status, stderr } = setUp(folderWith({ true: '' }), `installPrograms(${JSON.stringify(wanted)})`);
    assert.equal(status, 1);
    assert.equal(
      stderr,
      'sluice: chromium, strace are missing: install the packages chromium-package, strace-package\n',
    );
  });

  /** The few programs that the stand-ins need, without the redis-server of this machine. */
  function shellTools(): string {
    const folder = tempDir('tools');
    for (const program of ['env', 'dirname', 'true']) {
      const path = spawnSync('which', [program], { encoding: 'utf8' }).stdout.trim();
      symlinkSync(path, join(folder, program));
    }
    return folder;
  }
});

test('the lines of the greeting can be pasted into a shell whatever DATA_DIR is called', () => {
  const dir = join(tempDir('greeting'), "Ada's data");
  mkdirSync(dir);
  writeFileSync(join(dir, 'clickhouse-reader-password'), 'secret\n');
  const environments = [{ app_id: '1', name: 'Main', main: true }];
  const config = readConfig({ DATA_DIR: dir });
  const bootstrap = { created: true, restored: false, account_id: '1', environments, has_operator: true };
  const administration = { env: {}, tokenFile: undefined, demo: false };
  const lines = greeting(config, bootstrap, administration, undefined, undefined);
  const line = lines.find((each) => each.includes('SELECT count()')) ?? '';
  const code = `curl() { printf '%s\\n' "$@"; }; ${line}`;
  const { stdout } = spawnSync('sh', ['-c', code], { encoding: 'utf8' });
  assert.ok(stdout.split('\n').includes('reader:secret'), stdout);
});
