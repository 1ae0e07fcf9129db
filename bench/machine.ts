// Describes the commit, versions and machine, on which figures depend. Every page of results begins with them.

import { execFileSync } from 'node:child_process';
import { readFileSync, statfsSync } from 'node:fs';
import { cpus, release, tmpdir, totalmem } from 'node:os';
import { withRedis } from '../test/harness/redis-client.js';
import type { SluiceHandle } from '../test/harness/services.js';

const root = new URL('../../', import.meta.url);
const packages = [
  'uWebSockets.js',
  'bullmq',
  'ioredis',
  '@clickhouse/client',
  'ffi-rs',
  'autocannon',
  'undici',
  'fastify',
];
const tmpfsType = 0x01021994;

export type Machine = Omit<Awaited<ReturnType<typeof describeMachine>>, 'versions'> & {
  readonly versions: Readonly<Record<string, string>>;
};

type Servers = Pick<SluiceHandle, 'rows' | 'redisUrl'>;

/** Without servers there are no versions of Redis and ClickHouse. */
export async function describeMachine(servers?: Servers) {
  return {
    date: new Date().toISOString(),
    commit: describeCommit(),
    cores: cpus().length,
    processor: cpus()[0]?.model ?? 'unknown',
    memoryGib: Math.round(totalmem() / 1024 ** 3),
    kernel: release(),
    /** Whether the folder for temporary files is on a disk. If it is in memory, syncing costs nothing. */
    dataOnDisk: statfsSync(tmpdir()).type !== tmpfsType,
    versions: {
      node: process.version.slice(1),
      ...(servers && (await versionsOf(servers))),
      ...Object.fromEntries(packages.map((name) => [name, packageVersion(name)])),
    },
  };
}

/** The commit, with a `+` if there are uncommitted changes. */
function describeCommit(): string {
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    const changed = git('status', '--porcelain', '--', 'src', 'workers', 'deploy', 'package-lock.json');
    return `${git('rev-parse', '--short=12', 'HEAD')}${changed === '' ? '' : '+'}`;
  } catch {
    // There is no Git history here.
    return 'unknown';
  }
}

function packageVersion(name: string): string {
  const file = new URL(`node_modules/${name}/package.json`, root);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}

async function versionsOf(servers: Servers) {
  const [clickhouse] = await servers.rows<{ version: string }>('SELECT version() AS version');
  const info = await withRedis(servers, (redis) => redis.info('server'));
  const redis = /^redis_version:(\S+)/m.exec(info)?.[1] ?? 'unknown';
  return { redis, clickhouse: clickhouse?.version ?? 'unknown' };
}

export function describeInWords(machine: Machine): string {
  const { commit, date, cores, processor, memoryGib, kernel, dataOnDisk } = machine;
  const versions = Object.entries(machine.versions).map(([name, version]) => `${name} ${version}`);
  const data = dataOnDisk ? 'on disk' : 'in memory, so syncing costs nothing';
  const parts = [`Commit ${commit}, ${date.slice(0, 10)}`, `${cores} cores (${processor})`];
  return `${parts.join('; ')}, ${memoryGib} GiB, Linux ${kernel}, data ${data}; ${versions.join(', ')}.`;
}
