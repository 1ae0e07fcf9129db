// The minimum cost of storing and acknowledging: ClickHouse alone and Redis alone, with the rows, bytes and commands of the
// runs beside which they are measured.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { runEngine } from '../peers/engine.js';
import { type CommitShape, runAppend } from '../peers/redis-append.js';
import type { Peers } from '../peers/start.js';
import type { WayRuns } from '../results.js';
import type { Subject } from './measure.js';
import type { ThroughputRun } from './throughput.js';

/** Where no run of the session shows it. */
const standardRowsPerInsert = 15_000;
const standardCommits = { single: { events: 70, commands: 8 }, bulk: { events: 1_000, commands: 12 } };

export type StepResult = { readonly run: ThroughputRun; readonly rowsPerInsert?: number };

type Floor = {
  readonly name: string;
  readonly what: string;
  readonly subject: string;
  readonly run: (round: number, ways: ReadonlyMap<string, WayRuns>) => Promise<StepResult>;
};

export function floorSteps({ deployment, options }: Context, peers: Peers): Floor[] {
  // What the rest of the deployment does meanwhile does not matter.
  const { systemCpu: _system, commits: _commits, ...all } = deploymentSubject(deployment);
  const subject: Subject = { ...all, cpu: () => ({ clickhouse: all.cpu().clickhouse ?? 0 }) };
  const append = async (name: string, commit: CommitShape) => ({
    run: await runAppend({ redis: await peers.redis(), appId: name, commit, seconds: options.seconds }),
  });
  return [
    {
      name: 'engine',
      what: 'ClickHouse alone',
      subject: 'engine',
      run: async (round, ways) => {
        const rowsPerInsert = ways.get('bulk-500')?.rowsPerInsert ?? standardRowsPerInsert;
        const engine = { deployment, subject, appId: `engine-${round}`, rowsPerBlock: rowsPerInsert };
        return { run: await runEngine({ ...engine, seconds: options.seconds }), rowsPerInsert };
      },
    },
    {
      name: 'redis-single',
      what: 'Redis alone, commits of single events',
      subject: 'redis',
      run: (_round, ways) => append('redis-single', shapeOf(ways.get('single')) ?? standardCommits.single),
    },
    {
      name: 'redis-bulk',
      what: 'Redis alone, commits of bulk requests',
      subject: 'redis',
      run: (_round, ways) => append('redis-bulk', shapeOf(ways.get('bulk-500')) ?? standardCommits.bulk),
    },
  ];
}

/** The commits of a way's last run; undefined when there were none. */
function shapeOf(way: WayRuns | undefined): CommitShape | undefined {
  const run = way?.runs.at(-1);
  if (run?.commits === undefined || run.redis === undefined || run.commits.count === 0) return undefined;
  return {
    events: Math.max(1, Math.round(run.commits.records / run.commits.count)),
    commands: Math.max(1, Math.round(run.redis.commandsPerScript)),
  };
}
