// `npm start` with several servers of Redis: the primary is killed, with its data and without.

import assert from 'node:assert/strict';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { launch } from '../../deploy/local/launch.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { post } from '../harness/ingestion.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

const supervisor = fileURLToPath(new URL('../../deploy/local/main.js', import.meta.url));
const dataDir = tempDir('start');
const acceptedAgainMsMax = 10_000;
let stop = async () => {};

after(() => stop());

/** The first of this many consecutive free ports. */
async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = await freePort();
    const others = await Promise.all(
      Array.from({ length: count - 1 }, async (_, index) => isFree(first + 1 + index)),
    );
    if (others.every((free) => free)) return first;
  }
}

async function isFree(port: number): Promise<boolean> {
  const { createServer } = await import('node:net');
  return new Promise((settle) => {
    const server = createServer().once('error', () => settle(false));
    server.listen(port, '127.0.0.1', () => server.close(() => settle(true)));
  });
}

test('with REDIS_NODES=3 a lost primary is replaced, and returns as a replica, even without its data', async () => {
  const env = {
    ...plainEnvironment(),
    DATA_DIR: dataDir,
    PORT: String(await freePort()),
    ADMIN_PORT: String(await freePort()),
    REDIS_NODES: '3',
    CLICKHOUSE_PORT: String(await freePort()),
    CLICKHOUSE_TCP_PORT: String(await freePort()),
    REDIS_PORT: String(await freePorts(6)),
  };
  const start = launch(
    { command: process.execPath, args: [supervisor], env },
    ['ignore', 'pipe', 'pipe'],
    'KILL',
  );
  let output = '';
  for (const stream of [start.stdout, start.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  const exited = new Promise((settle) => start.on('close', settle));
  stop = async () => {
    start.kill('SIGTERM');
    await exited;
  };
  await until(() => output.includes('Read it back') || start.exitCode !== null, 'the start is up');
  assert.ok(output.includes('Read it back'), output);
  const appId = /Main Production\s+(\d+)/.exec(output)?.[1] ?? /app_id\D+(\d+)/.exec(output)?.[1];
  const baseUrl = `http://127.0.0.1:${env.PORT}`;
  const send = async (key: string) =>
    (
      await post(baseUrl, '/api/track', {
        app_id: appId,
        identity: 'ada',
        event: 'Sent',
        idempotency_key: key,
      })
    ).status;
  assert.equal(await send('first'), 200, output);

  for (const isWiped of [false, true]) {
    const primary = await primaryOf(env);
    const { children } = JSON.parse(readFileSync(join(dataDir, 'lock'), 'utf8')) as {
      children: { name: string; pid: number }[];
    };
    const number = primary - Number(env.REDIS_PORT) + 1;
    const killed = children.findLast(({ name }) => name === `redis-${number}`);
    const since = performance.now();
    process.kill(killed?.pid as number, 'SIGKILL');
    if (isWiped)
      rmSync(join(dataDir, number === 1 ? 'redis' : `redis-${number}`, 'appendonlydir'), { recursive: true });
    await until(async () => (await send(`wiped ${isWiped}`)) === 200, {
      deadlineMs: 30_000,
      what: 'a record is accepted',
    });
    assert.ok(performance.now() - since < acceptedAgainMsMax);
    await until(async () => (await replicasOf(env)) === 2, 'all servers are back');
    if (isWiped) assert.notEqual(await primaryOf(env), primary);
  }
  await until(async () => (await countStored(env)) === 3, { deadlineMs: 30_000, what: 'all is stored' });
});

type Env = { readonly REDIS_PORT: string; readonly CLICKHOUSE_PORT: string };

async function ask(port: number, ...command: string[]): Promise<string> {
  const { execFile } = await import('node:child_process');
  const { promisify } = await import('node:util');
  const password = readFileSync(join(dataDir, 'redis-password'), 'utf8').trim();
  const env = { ...process.env, REDISCLI_AUTH: password };
  return (await promisify(execFile)('redis-cli', ['-p', String(port), ...command], { env })).stdout;
}

async function primaryOf({ REDIS_PORT }: Env): Promise<number> {
  const named = await ask(Number(REDIS_PORT) + 4, 'sentinel', 'get-master-addr-by-name', 'sluice');
  return Number(named.split('\n')[1]);
}

async function replicasOf(env: Env): Promise<number> {
  const info = await ask(await primaryOf(env), 'info', 'replication').catch(() => '');
  return info.split('state=online').length - 1;
}

async function countStored({ CLICKHOUSE_PORT }: Env): Promise<number> {
  const password = readFileSync(join(dataDir, 'clickhouse-reader-password'), 'utf8').trim();
  const reply = await fetch(`http://127.0.0.1:${CLICKHOUSE_PORT}/?database=sluice`, {
    method: 'POST',
    headers: { 'X-ClickHouse-User': 'reader', 'X-ClickHouse-Key': password },
    body: `SELECT count() FROM events WHERE event = 'Sent'`,
  });
  return Number(await reply.text());
}
