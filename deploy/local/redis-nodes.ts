// The embedded Redis: one server or, on consecutive ports, several (REDIS_NODES), one of which is the primary, and the three sentinels that
// choose it. A server that has lost its data never starts as the primary, since all others would copy it.

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Config } from '../../src/config.js';
import { redisPasswordFile, redisSocket } from '../../src/config-redis.js';
import type { ChildSpec } from './child.js';
import { redisConfig } from './redis-config.js';
import { askRedis, readyRedisPid } from './redis-probe.js';
import { findOrMakeSecret } from './secrets.js';
import { StartError } from './start-error.js';

const name = 'sluice';
const minuteMs = 60_000;
/** How long a primary may be silent before the sentinels give up on it. */
const downMs = 2_000;

export function redisSpecs(config: Config): readonly ChildSpec[] {
  const password = findOrMakeSecret(redisPasswordFile(config.dataDir));
  const servers = numbers(config.redisNodes).map((number) => serverSpec(config, number, password));
  if (servers.length === 1) return servers;
  return [...servers, ...numbers(3).map((number) => sentinelSpec(config, number, password))];
}

/** A server answers while it loads, which takes minutes for a large append-only file. */
const ofEach = { ipc: false, healthyMsMax: 30 * minuteMs, stopMsMax: 20_000 };

function serverSpec(config: Config, number: number, password: string): ChildSpec {
  const { redisAppendfsync: appendfsync, redisMemoryBytesMax: memoryBytesMax } = config;
  const isAlone = config.redisNodes === 1;
  const port = portOf(config, number);
  const dir = serverDir(config, number);
  const file = join(dir, 'redis.conf');
  return {
    ...ofEach,
    name: isAlone ? 'redis' : `redis-${number}`,
    program: { command: 'redis-server', args: [file], env: process.env },
    prepare: async (signal) => {
      mkdirSync(dir, { recursive: true });
      const hasSocket = isAlone && (await holdsSockets(redisSocket(config.dataDir)));
      const lines = [
        redisConfig({ port, dir, password, hasSocket, appendfsync, memoryBytesMax }),
        ...(isAlone
          ? []
          : replicationOf(port, await findPrimary(config, number, password, signal), password)),
      ];
      writeFileSync(file, lines.join('\n'), { mode: 0o600 });
    },
    healthy: async (pid) => (await readyRedisPid(port, password)) === pid,
  };
}

function replicationOf(port: number, primary: number, password: string): readonly string[] {
  const isPrimary = primary === port;
  return [
    `masterauth ${JSON.stringify(password)}`,
    'min-replicas-to-write 1',
    'min-replicas-max-lag 3',
    ...(isPrimary ? [] : [`replicaof 127.0.0.1 ${primary}`]),
    '',
  ];
}

/** Whether a server can listen on a socket at a path, since some shared file systems support no sockets. Leaves nothing there. */
async function holdsSockets(path: string | undefined): Promise<boolean> {
  if (path === undefined) return false;
  rmSync(path, { force: true });
  const server = createServer();
  const listens = new Promise<boolean>((settle) => {
    server.once('error', () => settle(false));
    server.listen(path, () => settle(true));
  });
  if (!(await listens)) return false;
  await new Promise((resolve) => server.close(resolve));
  return true;
}

/** The port of the server that is the primary, or is to become it. */
async function findPrimary(
  config: Config,
  number: number,
  password: string,
  signal: AbortSignal,
): Promise<number> {
  const own = portOf(config, number);
  for (;;) {
    const chosen = await askSentinels(config, password);
    if (chosen === undefined) return firstPrimary(config);
    // The sentinels choose another one while this one is down.
    if (chosen !== own || hasData(config, number) || signal.aborted) return chosen;
    await pause(500);
  }
}

/**
 * Throws StartError if the last primary is among more servers than are to be started: only it is certain to have all that was acknowledged.
 */
export function checkLastPrimary(config: Config): void {
  const last = lastPrimary(config);
  if (last > config.redisNodes && hasData(config, last))
    throw new StartError(`REDIS_NODES must be at least ${last}: server ${last} was the primary of Redis`);
}

/** The number of the server that was the primary last; 1 if none is recorded. */
function lastPrimary(config: Config): number {
  // The sentinels may have been killed before all of them recorded the last choice.
  const [last] = numbers(3)
    .flatMap((number) => notedPrimary(config, number) ?? [])
    .sort((a, b) => b.epoch - a.epoch);
  return last?.number ?? 1;
}

/** Before the sentinels run: the last primary or, if that has lost its data, another server. */
function firstPrimary(config: Config): number {
  const last = lastPrimary(config);
  const withData = [last, ...numbers(config.redisNodes)].find((number) => hasData(config, number));
  return portOf(config, withData ?? 1);
}

function portOf({ redisPort }: Config, number: number): number {
  return redisPort + number - 1;
}

async function askSentinels(config: Config, password: string): Promise<number | undefined> {
  const { sentinels } = config.redisSentinels ?? { sentinels: [] };
  const answers = await Promise.all(
    sentinels.map(({ port }) =>
      askRedis(port, password, `SENTINEL get-master-addr-by-name ${name}`).catch(() => ''),
    ),
  );
  const ports = answers.flatMap((text) => {
    const [, port] = /\*2\r\n\$\d+\r\n\S+\r\n\$\d+\r\n(\d+)\r\n/.exec(text) ?? [];
    return port === undefined ? [] : [Number(port)];
  });
  return ports.find((port) => ports.filter((other) => other === port).length * 2 > ports.length);
}

function sentinelSpec(config: Config, number: number, password: string): ChildSpec {
  const port = config.redisPort + config.redisNodes + number - 1;
  const file = sentinelFile(config, number);
  const quoted = JSON.stringify(password);
  return {
    ...ofEach,
    name: `redis-sentinel-${number}`,
    program: { command: 'redis-server', args: [file, '--sentinel'], env: process.env },
    prepare: async () => {
      const primary = (await askSentinels(config, password)) ?? firstPrimary(config);
      const dir = join(config.dataDir, `redis-sentinel-${number}`);
      const own = [
        `${firstPortMark}${config.redisPort}`,
        'bind 127.0.0.1',
        `port ${port}`,
        `dir ${JSON.stringify(dir)}`,
        `requirepass ${quoted}`,
        '',
      ].join('\n');
      // The sentinel itself records in this file what it learns. In a DATA_DIR that was moved, it would look for its former folder.
      const noted = read(file).startsWith(own) ? notedPrimary(config, number) : undefined;
      if (noted !== undefined && portOf(config, noted.number) === primary) return;
      mkdirSync(dir, { recursive: true });
      const lines = [
        `sentinel sentinel-pass ${quoted}`,
        `sentinel monitor ${name} 127.0.0.1 ${primary} 2`,
        `sentinel auth-pass ${name} ${quoted}`,
        `sentinel down-after-milliseconds ${name} ${downMs}`,
        `sentinel failover-timeout ${name} 10000`,
        '',
      ];
      writeFileSync(file, own + lines.join('\n'), { mode: 0o600 });
    },
    healthy: async () => {
      const info = await askRedis(port, password, 'INFO sentinel');
      return info.includes(`status=ok`) && info.includes(`slaves=${config.redisNodes - 1},`);
    },
  };
}

function serverDir({ dataDir }: Config, number: number): string {
  return join(dataDir, number === 1 ? 'redis' : `redis-${number}`);
}

function sentinelFile({ dataDir }: Config, number: number): string {
  return join(dataDir, `redis-sentinel-${number}`, 'sentinel.conf');
}

function hasData(config: Config, number: number): boolean {
  return existsSync(join(serverDir(config, number), 'appendonlydir'));
}

/** Begins the line of a sentinel's file that names the port of the first server, since REDIS_PORT may be another one now. */
const firstPortMark = '# REDIS_PORT ';

/** The number of the primary that a sentinel has recorded. Each choice has a higher epoch than the previous one. */
function notedPrimary(config: Config, number: number): { number: number; epoch: number } | undefined {
  const text = read(sentinelFile(config, number));
  const port = /^sentinel monitor \S+ \S+ (\d+) /m.exec(text)?.[1];
  const first = new RegExp(`^${firstPortMark}(\\d+)$`, 'm').exec(text)?.[1];
  const epoch = /^sentinel config-epoch \S+ (\d+)$/m.exec(text)?.[1];
  if (port === undefined) return undefined;
  return { number: Number(port) - Number(first ?? config.redisPort) + 1, epoch: Number(epoch ?? 0) };
}

function read(file: string): string {
  return existsSync(file) ? readFileSync(file, 'utf8') : '';
}

/** 1 up to the count. */
export function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index + 1);
}
