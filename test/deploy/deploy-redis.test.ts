// deploy/redis/start.sh: three servers and three sentinels as it starts them, and a server that lost its folder.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { readConfig } from '../../src/config.js';
import { createLog } from '../../src/log.js';
import { replicaFaults } from '../../src/redis/check-replicas.js';
import { connect, untilReady } from '../../src/redis/client.js';
import { type Child, startChild } from '../harness/child.js';
import { freePort } from '../harness/free-port.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { parseYaml, readDeployFile, readYaml } from '../support/deploy-file.js';

const script = fileURLToPath(new URL('../../../deploy/redis/start.sh', import.meta.url));
const password = 'a-password';
const root = tempDir('redis-hosts');
const children: Child[] = [];

after(async () => {
  await Promise.all(children.map((child) => child.kill9()));
});

async function ask(port: number, ...command: readonly string[]): Promise<string> {
  const env = { ...process.env, REDISCLI_AUTH: password };
  return (await promisify(execFile)('redis-cli', ['-p', String(port), ...command], { env })).stdout;
}

/** How the very first server learns that it is the first: a variable on hosts of Compose, a file in pods, which have names. */
const ways = {
  addresses: { host: '127.0.0.1', first: async () => ({ FIRST: '1' }) },
  names: {
    host: 'localhost',
    first: async (dir: string) => {
      mkdirSync(dir, { recursive: true });
      writeFileSync(join(dir, 'first'), '');
      return {};
    },
  },
};

for (const [way, { host, first: tell }] of Object.entries(ways))
  test(`an empty server waits until the sentinels name another one, and follows that: by ${way}`, async (context) => {
    const ports = [await freePort(), await freePort(), await freePort()];
    const sentinelPorts = [await freePort(), await freePort(), await freePort()];
    const listed = (all: readonly number[]) => all.map((port) => `${host}:${port}`).join(' ');
    const start = async (role: 'server' | 'sentinel', port: number, more: NodeJS.ProcessEnv = {}) => {
      const dir = join(root, String(port));
      mkdirSync(dir, { recursive: true });
      const env = {
        ...process.env,
        REDIS_SERVERS: listed(ports),
        REDIS_SENTINELS: listed(sentinelPorts),
        REDIS_SELF: `${host}:${port}`,
        REDIS_DIR: dir,
        REDISCLI_AUTH: password,
        ...more,
      };
      const child = await startChild({
        name: `${role} ${port}`,
        program: { command: 'sh', args: [script, role], env },
        healthy: () => true,
        healthyDeadlineMs: 10_000,
      });
      children.push(child);
      return child;
    };
    const [first = 0, second = 0] = ports;
    const primary = async () => {
      const reply = await ask(sentinelPorts[1] as number, 'sentinel', 'get-master-addr-by-name', 'sluice');
      const [named, port] = reply.split('\n');
      assert.equal(named, host);
      return Number(port);
    };
    const replicas = async (port: number) =>
      (await ask(port, 'info', 'replication').catch(() => '')).split('state=online').length - 1;

    // As long as there is no primary, no other server becomes one.
    await start('server', second);
    const begun = await start('server', first, await tell(join(root, String(first))));
    await until(
      async () => (await ask(first, 'ping').catch(() => '')).startsWith('PONG'),
      'the first server answers',
    );
    assert.equal(existsSync(join(root, String(second), 'redis.conf')), false);
    for (const port of sentinelPorts) await start('sentinel', port);
    await start('server', ports[2] as number);
    await until(async () => (await replicas(first)) === 2, 'two servers follow');
    await until(
      async () =>
        /num-slaves\n2\n(?:.*\n)*num-other-sentinels\n2\n/.test(
          await ask(sentinelPorts[1] as number, 'sentinel', 'master', 'sluice'),
        ),
      'the sentinels know all',
    );

    const url = `redis-sentinel://default:${password}@${listed(sentinelPorts).replaceAll(' ', ',')}/sluice`;
    const address = readConfig({ REDIS_URL: url, REDIS_REPLICAS_ACK: '1' });
    const redis = connect(address, createLog('test', 'silent'));
    context.after(() => redis.disconnect());
    await untilReady(redis, 60_000);
    await redis.set('kept', 'yes');
    assert.deepEqual(await replicaFaults(redis, 1), [], 'a process finds nothing to warn of');

    await begun.kill9();
    rmSync(join(root, String(first)), { recursive: true });
    await start('server', first);
    // An election that fails, as on a busy machine, is repeated half a minute later.
    await until(async () => (await primary()) !== first, { deadlineMs: 180_000, what: 'another primary' });
    await until(async () => (await replicas(await primary())) === 2, {
      deadlineMs: 180_000,
      what: 'the first server is back',
    });
    assert.match(await ask(first, 'get', 'kept'), /^yes/);
  });

test('servers and sentinels keep what they learn in a volume', () => {
  const { services } = readYaml<{
    services: Record<string, { environment: Record<string, string>; volumes: string[] }>;
  }>('redis/compose.yaml');
  for (const { environment, volumes } of Object.values(services)) {
    assert.ok(volumes.some((volume) => volume.endsWith(':/data')));
    assert.equal(environment.REDIS_DIR, '/data');
  }
});

test('pods do so too; they name each other as their service does, and run on different nodes', () => {
  type Pods = {
    readonly kind: string;
    readonly metadata: { readonly name: string };
    readonly spec: {
      readonly serviceName: string;
      readonly replicas: number;
      readonly template: {
        readonly spec: {
          readonly affinity: { readonly podAntiAffinity: object };
          readonly containers: readonly {
            readonly name: string;
            readonly env: readonly { readonly name: string; readonly value?: string }[];
            readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
          }[];
        };
      };
      readonly volumeClaimTemplates: readonly { readonly metadata: { readonly name: string } }[];
    };
  };
  const file = 'kubernetes/redis-replicas.example.yaml';
  const pods =
    (parseYaml(readDeployFile(file), file) as Pods[]).find(({ kind }) => kind === 'StatefulSet') ??
    assert.fail();
  const { spec } = pods;
  const claimed = spec.volumeClaimTemplates.map(({ metadata }) => metadata.name);
  const named = (port: number) =>
    Array.from(
      { length: spec.replicas },
      (_, at) => `${pods.metadata.name}-${at}.${spec.serviceName}:${port}`,
    );
  assert.ok('requiredDuringSchedulingIgnoredDuringExecution' in spec.template.spec.affinity.podAntiAffinity);
  for (const { name, env, volumeMounts } of spec.template.spec.containers) {
    const volume = volumeMounts.find(({ mountPath }) => mountPath === '/data')?.name ?? '';
    assert.ok(claimed.includes(volume), name);
    const values = Object.fromEntries(env.map(({ name, value }) => [name, value]));
    assert.equal(values.REDIS_DIR, '/data');
    assert.equal(values.REDIS_SERVERS, named(6379).join(' '));
    assert.equal(values.REDIS_SENTINELS, named(26379).join(' '));
  }
});
