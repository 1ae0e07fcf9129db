// Commit, versions and machine, which figures depend on. Every page of results begins with them.

import { execFileSync } from 'node:child_process';
import { readFileSync, statfsSync } from 'node:fs';
import { cpus, release, tmpdir, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import type { Deployment } from './deployment/deployment.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const packages = ['uWebSockets.js', 'bullmq', 'ioredis', '@clickhouse/client', 'ffi-rs', 'undici', 'fastify'];
const tmpfsType = 0x01021994;

export type Machine = {
  readonly date: string;
  /** Ends with `+` if there were uncommitted changes. */
  readonly commit: string;
  readonly cores: number;
  readonly processor: string;
  readonly memoryGib: number;
  readonly kernel: string;
  /** If /tmp is in memory, syncing costs nothing. */
  readonly dataOnDisk: boolean;
  readonly versions: Readonly<Record<string, string>>;
};

/** Without a deployment there are no versions of Redis and ClickHouse. */
export async function describeMachine(
  deployment: Pick<Deployment, 'rows' | 'redisUrl'> | undefined,
): Promise<Machine> {
  const [clickhouse] = (await deployment?.rows<{ version: string }>('SELECT version() AS version')) ?? [];
  const versions = Object.fromEntries(packages.map((name) => [name, packageVersion(name)]));
  return {
    date: new Date().toISOString(),
    commit: describeCommit(),
    cores: cpus().length,
    processor: cpus()[0]?.model ?? 'unknown',
    memoryGib: Math.round(totalmem() / 1024 ** 3),
    kernel: release(),
    dataOnDisk: statfsSync(tmpdir()).type !== tmpfsType,
    versions: {
      node: process.version.slice(1),
      ...(deployment === undefined ? {} : { redis: await redisVersion(deployment.redisUrl) }),
      ...(clickhouse === undefined ? {} : { clickhouse: clickhouse.version }),
      ...versions,
    },
  };
}

function describeCommit(): string {
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    const changed =
      git('status', '--porcelain', '--', 'src', 'workers', 'deploy', 'package-lock.json') !== '';
    return `${git('rev-parse', '--short=12', 'HEAD')}${changed ? '+' : ''}`;
  } catch {
    // There is no Git history here.
    return 'unknown';
  }
}

function packageVersion(name: string): string {
  const file = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}

async function redisVersion(url: string): Promise<string> {
  const redis = new Redis(url);
  try {
    return /^redis_version:(\S+)/m.exec(await redis.info('server'))?.[1] ?? 'unknown';
  } finally {
    redis.disconnect();
  }
}

/** The machine as one paragraph. */
export function describeInWords(machine: Machine): string {
  const versions = Object.entries(machine.versions).map(([name, version]) => `${name} ${version}`);
  return `Commit ${machine.commit}, ${machine.date.slice(0, 10)}; ${machine.cores} cores (${machine.processor}), ${
    machine.memoryGib
  } GiB, Linux ${machine.kernel}, data ${machine.dataOnDisk ? 'on disk' : 'in memory, so syncing costs nothing'}; ${versions.join(
    ', ',
  )}.`;
}
