// The children that `npm start` runs, and which Redis it starts as the primary.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createChild } from '../../deploy/local/child.js';
import { checkLastPrimary, redisSpecs } from '../../deploy/local/redis-nodes.js';
import { readConfig } from '../../src/config.js';
import { freePort } from '../harness/free-port.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

test('a child that cannot be started, as on a full disk or for lack of memory, is started once it can', async (context) => {
  const said: string[] = [];
  let preparations = 0;
  const dir = tempDir('child');
  const lock = { fd: 0, note: () => undefined, noteStopping: () => undefined, release: () => undefined };
  const args = ['1000'];
  const program = { command: 'sleep', args, env: process.env };
  const child = createChild(
    {
      name: 'sleeper',
      program,
      ipc: false,
      prepare: async () => {
        preparations += 1;
        if (preparations === 2) throw new Error('ENOSPC');
        // Makes the call throw that starts a process.
        args[0] = preparations === 3 ? '\0' : '1000';
      },
      healthy: async () => true,
      healthyMsMax: 10_000,
      stopMsMax: 10_000,
    },
    { logDir: dir, lock, say: (line) => said.push(line) },
  );
  await child.start();
  const first = child.pid as number;
  process.kill(first, 'SIGKILL');
  context.after(() => child.stop(new AbortController().signal));
  await until(() => said.some((line) => line.startsWith('sleeper runs again')), 'it runs again');
  assert.notEqual(child.pid, first);
  assert.match(said.join('\n'), /sleeper cannot be started \(ENOSPC\), starting it again in \d+ ms/);
  assert.equal(preparations, 4);
});

test('if the sentinels noted different primaries of Redis, the one that they chose last is started as such', async () => {
  const dataDir = tempDir('nodes');
  const port = await freePort();
  const config = readConfig({ DATA_DIR: dataDir, REDIS_NODES: '3', REDIS_PORT: String(port) });
  for (const [index, [primary, epoch]] of [
    [port + 1, 1],
    [port, 2],
    [port, 2],
  ].entries()) {
    const dir = join(dataDir, `redis-sentinel-${index + 1}`);
    mkdirSync(dir, { recursive: true });
    const lines = [
      `sentinel monitor sluice 127.0.0.1 ${primary} 2`,
      `sentinel config-epoch sluice ${epoch}`,
      '',
    ];
    writeFileSync(join(dir, 'sentinel.conf'), lines.join('\n'));
  }
  for (const dir of ['redis', 'redis-2', 'redis-3'])
    mkdirSync(join(dataDir, dir, 'appendonlydir'), { recursive: true });
  const servers = redisSpecs(config).slice(0, 3);
  for (const { prepare } of servers) await prepare?.(new AbortController().signal);
  const primaryOf = (dir: string) =>
    /^replicaof \S+ (\d+)$/m.exec(readFileSync(join(dataDir, dir, 'redis.conf'), 'utf8'))?.[1];
  assert.deepEqual(['redis', 'redis-2', 'redis-3'].map(primaryOf), [undefined, String(port), String(port)]);
});

test('the last primary of Redis is started as such with another REDIS_PORT, and not left out with fewer REDIS_NODES', async () => {
  const dataDir = tempDir('nodes');
  const port = await freePort();
  const configOf = (redisPort: number, nodes: number) =>
    readConfig({ DATA_DIR: dataDir, REDIS_NODES: String(nodes), REDIS_PORT: String(redisPort) });
  const signal = new AbortController().signal;
  for (const { prepare } of redisSpecs(configOf(port, 3))) await prepare?.(signal);
  const file = join(dataDir, 'redis-sentinel-2', 'sentinel.conf');
  const noted = readFileSync(file, 'utf8').replace(`127.0.0.1 ${port} 2`, `127.0.0.1 ${port + 1} 2`);
  writeFileSync(file, `${noted}sentinel config-epoch sluice 3\n`);
  for (const dir of ['redis', 'redis-2', 'redis-3']) mkdirSync(join(dataDir, dir, 'appendonlydir'));

  const [, second] = redisSpecs(configOf(port + 1, 3));
  await second?.prepare?.(signal);
  assert.doesNotMatch(readFileSync(join(dataDir, 'redis-2', 'redis.conf'), 'utf8'), /^replicaof/m);
  checkLastPrimary(configOf(port + 1, 2));
  assert.throws(
    () => checkLastPrimary(configOf(port, 1)),
    /REDIS_NODES must be at least 2: server 2 was the primary of Redis/,
  );
  rmSync(join(dataDir, 'redis-2', 'appendonlydir'), { recursive: true });
  checkLastPrimary(configOf(port, 1));
});

test('a sentinel keeps what it has recorded, unless its DATA_DIR was moved', async () => {
  const port = await freePort();
  const configOf = (dataDir: string) =>
    readConfig({ DATA_DIR: dataDir, REDIS_NODES: '3', REDIS_PORT: String(port) });
  const prepare = async (dataDir: string) => {
    await redisSpecs(configOf(dataDir))[3]?.prepare?.(new AbortController().signal);
    return readFileSync(join(dataDir, 'redis-sentinel-1', 'sentinel.conf'), 'utf8');
  };
  const dataDir = tempDir('nodes');
  const first = await prepare(dataDir);
  writeFileSync(join(dataDir, 'redis-sentinel-1', 'sentinel.conf'), `${first}recorded`);
  assert.equal(await prepare(dataDir), `${first}recorded`);
  const moved = join(tempDir('moved'), 'data');
  renameSync(dataDir, moved);
  assert.equal(await prepare(moved), first.replaceAll(dataDir, moved));
});
