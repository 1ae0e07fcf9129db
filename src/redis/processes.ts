// The processes that run now, on all hosts: each announces itself every few seconds. For display only; nothing relies on it.

import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import type { AdministrationAnswers } from '../contract/administration-answers.js';
import type { Log } from '../log.js';
import { type ProcessKind, queryableSeconds } from '../metrics.js';
import { repeat } from '../repeat.js';
import { runningProcesses } from '../tuning.js';
import type { Redis } from './client.js';
import { registryKeys } from './keys.js';

type RunningProcess = AdministrationAnswers['showDeployment']['processes'][number];

const version = readVersion();

function readVersion(): string {
  try {
    const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
    return (JSON.parse(text) as { version: string }).version;
  } catch {
    // The file may have been left out of an image.
    return 'unknown';
  }
}

/** Starts to announce that this process runs. The returned function removes the announcement. */
export function announceProcess(redis: Redis, kind: ProcessKind, log: Log): () => Promise<void> {
  const startedAt = new Date(Date.now() - process.uptime() * 1000).toISOString();
  const field = `${hostname()} ${process.pid}`;
  const announce = async () => {
    const { values } = await queryableSeconds.get();
    const self: RunningProcess = {
      process: kind,
      host: hostname(),
      pid: process.pid,
      version,
      node: process.version,
      started_at: startedAt,
      said_at: new Date().toISOString(),
      memory_bytes: process.memoryUsage.rss(),
      queryable_seconds: values[0]?.value ?? 0,
    };
    await redis.hset(registryKeys.processes, field, JSON.stringify(self));
  };
  const { stop } = repeat({
    work: announce,
    everyMs: runningProcesses.sayEveryMs,
    failed: (error) => log.debug({ error }, 'the process is not listed'),
  });
  return async () => {
    void stop();
    // A Redis that does not answer must not make the stop fail: a process that is silent is forgotten.
    if (redis.status === 'ready')
      await redis
        .hdel(registryKeys.processes, field)
        .catch((error: unknown) => log.debug({ error }, 'the process stays listed for some seconds'));
  };
}

/** The processes that announced themselves lately, by host and start. Forgets processes that ended silently. */
export async function listProcesses(redis: Redis, nowMs: number): Promise<readonly RunningProcess[]> {
  const announced = await redis.hgetall(registryKeys.processes);
  const all = Object.entries(announced).map(([field, text]) => ({
    field,
    ...(JSON.parse(text) as RunningProcess),
  }));
  const isGone = ({ said_at }: RunningProcess) => nowMs - Date.parse(said_at) > runningProcesses.staleMs;
  const gone = all.filter(isGone).map(({ field }) => field);
  if (gone.length > 0) await redis.hdel(registryKeys.processes, ...gone);
  return all
    .filter((each) => !isGone(each))
    .map(({ field: _, ...running }) => running)
    .sort((a, b) => a.host.localeCompare(b.host) || a.started_at.localeCompare(b.started_at));
}
