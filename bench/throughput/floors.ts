// The least that storing and acknowledging can cost: ClickHouse alone and Redis alone, with the rows, bytes and commands of the
// service's runs in the same session.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { runEngine } from '../peers/engine.js';
import { type CommitShape, runAppend } from '../peers/redis-append.js';
import type { Peers } from '../peers/start.js';
import type { WayRuns } from '../results.js';
import type { Subject } from './measure.js';
import type { ThroughputRun } from './throughput.js';

/** For sessions without a run of the service to copy. */
const standardRowsPerInsert = 15_000;
const standardCommits = { single: { events: 70, commands: 8 }, bulk: { events: 1_000, commands: 12 } };

export type StepResult = { readonly run: ThroughputRun; readonly rowsPerInsert?: number };

type Floor = Pick<WayRuns, 'name' | 'what' | 'subject'> & {
  readonly run: (round: number, ways: ReadonlyMap<string, WayRuns>) => Promise<StepResult>;
};

export function floorSteps({ deployment, options: { seconds } }: Context, peers: Peers): Floor[] {
  // Only ClickHouse works: the other processes do not count.
  const { systemCpu: _system, commits: _commits, ...all } = deploymentSubject(deployment);
  const subject: Subject = { ...all, cpu: () => ({ clickhouse: all.cpu().clickhouse ?? 0 }) };
  const redisFloor = (name: string, requests: string, way: string, standard: CommitShape): Floor => ({
    name,
    what: `Redis alone, commits of ${requests}`,
    subject: 'redis',
    run: async (_round, ways) => {
      const commit = shapeOf(ways.get(way)) ?? standard;
      return { run: await runAppend({ redis: await peers.redis(), appId: name, commit, seconds }) };
    },
  });
  return [
    {
      name: 'engine',
      what: 'ClickHouse alone',
      subject: 'engine',
      run: async (round, ways) => {
        const rowsPerInsert = ways.get('bulk-500')?.rowsPerInsert ?? standardRowsPerInsert;
        const engine = { deployment, subject, appId: `engine-${round}`, rowsPerBlock: rowsPerInsert };
        return { run: await runEngine({ ...engine, seconds }), rowsPerInsert };
      },
    },
    redisFloor('redis-single', 'single events', 'single', standardCommits.single),
    redisFloor('redis-bulk', 'bulk requests', 'bulk-500', standardCommits.bulk),
  ];
}

/** The commits of a way's last run; undefined if there were none. */
function shapeOf(way: WayRuns | undefined): CommitShape | undefined {
  const { commits, redis } = way?.runs.at(-1) ?? {};
  if (commits === undefined || redis === undefined || commits.count === 0) return undefined;
  return {
    events: Math.max(1, Math.round(commits.records / commits.count)),
    commands: Math.max(1, Math.round(redis.commandsPerScript)),
  };
}
