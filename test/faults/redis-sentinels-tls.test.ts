// Sentinels and servers that accept only TLS: `rediss-sentinel`.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Child, startChild } from '../harness/child.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { type RedisHandle, startRedis } from '../harness/redis.js';
import { ask } from '../harness/redis-cluster.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { makeCertificate } from '../support/proxies.js';

const dir = tempDir('tls');
const certificate = join(dir, 'certificate.pem');
const tls = [
  `tls-cert-file ${certificate}`,
  `tls-key-file ${join(dir, 'key.pem')}`,
  `tls-ca-cert-file ${certificate}`,
  'tls-auth-clients no',
  'tls-replication yes',
];
const servers: RedisHandle[] = [];
let sentinel: Child | undefined;
let sentinelPort = 0;
let ports: number[] = [];

before(async () => {
  mkdirSync(dir, { recursive: true });
  makeCertificate(dir);
  ports = [await freePort(), await freePort()];
  for (const [at, port] of ports.entries()) {
    const follows = at === 0 ? [] : [`replicaof 127.0.0.1 ${ports[0]}`];
    const more = [...tls, 'repl-diskless-sync-delay 0', `tls-port ${port}`, ...follows];
    servers.push(await startRedis({ more }));
  }
  await until(
    async () => (await ask(servers[0]?.port ?? 0, 'info', 'replication')).includes('state=online'),
    'the replica is up to date',
  );
  sentinelPort = await freePort();
  const file = join(dir, 'sentinel.conf');
  const socket = join(dir, 'sentinel.sock');
  const lines = [
    ...tls,
    'bind 127.0.0.1',
    'port 0',
    `tls-port ${sentinelPort}`,
    `unixsocket ${socket}`,
    `dir ${dir}`,
    `sentinel monitor main 127.0.0.1 ${ports[0]} 1`,
    // Sentinels ping once a second, so with a second here a server that has just taken over would sometimes count as down.
    'sentinel down-after-milliseconds main 2000',
    // If one failover fails, the next one comes soon, and not after the default of minutes.
    'sentinel failover-timeout main 5000',
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  sentinel = await startChild({
    name: 'redis-sentinel',
    program: { command: 'redis-server', args: [file, '--sentinel'], env: process.env },
    healthy: async () => (await ask(socket, 'sentinel', 'master', 'main')).includes('num-slaves\n1'),
    healthyDeadlineMs: 60_000,
  });
});

after(async () => {
  await sentinel?.kill9();
  for (const server of servers) await server.remove();
});

const program = `
  const { readConfig } = await import('${at('src/config.js')}');
  const { connect, untilReady } = await import('${at('src/redis/client.js')}');
  const { createLog } = await import('${at('src/log.js')}');
  const { takeTurn } = await import('${at('src/redis/lease.js')}');
  const redis = connect(readConfig(process.env), createLog('test', 'silent'));
  await untilReady(redis, 5_000);
  console.log(await takeTurn(redis, 'turn', 10), redis.stream.encrypted, redis.stream.remotePort);
  redis.disconnect();`;

const impatient = `
  const { Redis } = await import('${at('src/packages/ioredis.js')}');
  const untrusted = { host: '127.0.0.1', port: Number(process.env.PORT), tls: {}, retryStrategy: null };
  for (let passedMs = 0; passedMs < 8; passedMs += 0.02) {
    const redis = new Redis({ ...untrusted, disconnectTimeout: 1 });
    redis.on('error', () => undefined);
    await new Promise((resolve) => setTimeout(resolve, passedMs));
    redis.disconnect();
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
  console.log('goes on');`;

function at(path: string): string {
  return fileURLToPath(new URL(`../../${path}`, import.meta.url));
}

/** Has a process take a turn that a replica confirms; settles with what it prints about its connection. */
async function takeTurnBy(more: NodeJS.ProcessEnv): Promise<string> {
  const REDIS_URL = `rediss-sentinel://127.0.0.1:${sentinelPort}/main`;
  const env = { ...plainEnvironment(), REDIS_URL, REDIS_REPLICAS_ACK: '1', ...more };
  const args = ['--input-type=module', '--eval', program];
  return (await promisify(execFile)(process.execPath, args, { env, timeout: 60_000 })).stdout.trim();
}

test('a process continues when servers send TLS alerts about handshakes that it left, at whatever moment', async () => {
  const args = ['--input-type=module', '--eval', impatient];
  const env = { ...plainEnvironment(), PORT: String(ports[0]) };
  const { stdout } = await promisify(execFile)(process.execPath, args, { env, timeout: 120_000 });
  assert.equal(stdout.trim(), 'goes on');
});

test('rediss-sentinel asks the sentinels by TLS, and reaches whoever is the primary by TLS', async () => {
  const trusting = { NODE_EXTRA_CA_CERTS: certificate };
  // A slow disk may delay the replica that confirms.
  await until(async () => (await takeTurnBy(trusting)) === `true true ${ports[0]}`, 'the primary is found');
  await assert.rejects(takeTurnBy({}), /did not answer in time/);
  await servers[0]?.kill9();
  await until(
    async () => (await ask(servers[1]?.port ?? 0, 'info', 'replication')).includes('role:master'),
    'the other server is the primary',
  );
  await servers[0]?.restart();
  await until(
    async () => (await takeTurnBy(trusting)) === `true true ${ports[1]}`,
    'the new primary is found',
  );
});
