// The minimum cost of storing and acknowledging: ClickHouse alone and Redis alone, with the rows and bytes of the runs
// beside which they are measured.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { runEngine, runEngineNative } from '../peers/engine.js';
import { runAppend } from '../peers/redis-append.js';
import type { Peers } from '../peers/start.js';
import type { WayRuns } from '../results.js';
import type { Run, Subject } from './measure.js';
import type { ThroughputRun } from './throughput.js';

/** Rows per insert of the engine alone, if no bulk run of the session shows it. */
const standardRowsPerInsert = 15_000;
/** Of Redis alone: events per commit, and bulk requests of 500 per commit. */
const commandsPerPipeline = { single: 30, bulk: 2 };
/** An estimate of the engine's rate, which decides how many blocks fit into a run. */
const rowsPerSecond = 100_000;

export type StepResult = { readonly run: ThroughputRun; readonly rowsPerInsert?: number };

type Floor = {
  readonly name: string;
  readonly what: string;
  readonly subject: string;
  readonly once: boolean;
  readonly appIds: () => Promise<string[]>;
  readonly run: (appId: string, round: number, ways: ReadonlyMap<string, WayRuns>) => Promise<StepResult>;
};

/** None without a deployment of the bench. */
export function floorSteps({ deployment, options }: Context, peers: Peers | undefined): Floor[] {
  if (peers === undefined) return [];
  // What the rest of the deployment does meanwhile does not matter.
  const { systemCpu: _system, commits: _commits, ...all } = deploymentSubject(deployment);
  const subject: Subject = { ...all, cpu: () => ({ clickhouse: all.cpu().clickhouse ?? 0 }) };
  const appIds = (name: string) => () =>
    Promise.resolve(Array.from({ length: options.repeats }, (_, i) => `${name}-${i + 1}`));
  const engine = (ways: ReadonlyMap<string, WayRuns>) => {
    const rowsPerInsert = ways.get('bulk-500')?.rowsPerInsert ?? standardRowsPerInsert;
    const blocks = Math.max(2, Math.round((rowsPerSecond * options.seconds) / rowsPerInsert));
    return { rowsPerInsert, blocks };
  };
  const append = async (appId: string, rowsPerCommand: number, kind: 'single' | 'bulk') => ({
    run: await runAppend({
      redis: await peers.redis(),
      appId,
      rowsPerCommand,
      commandsPerPipeline: commandsPerPipeline[kind],
      seconds: options.seconds / 2,
    }),
  });
  return [
    {
      name: 'engine',
      what: 'ClickHouse alone, through HTTP',
      subject: 'engine',
      once: false,
      appIds: appIds('engine'),
      run: async (appId, _round, ways) => {
        const { rowsPerInsert, blocks } = engine(ways);
        const run: Run = await runEngine({ deployment, subject, appId, rowsPerBlock: rowsPerInsert, blocks });
        return { run, rowsPerInsert };
      },
    },
    {
      name: 'engine-native',
      what: 'ClickHouse alone, by the native protocol',
      subject: 'engine-native',
      once: false,
      appIds: appIds('engine-native'),
      run: async (appId, _round, ways) => {
        const { rowsPerInsert, blocks } = engine(ways);
        return {
          run: await runEngineNative({ deployment, subject, appId, rowsPerBlock: rowsPerInsert, blocks }),
          rowsPerInsert,
        };
      },
    },
    {
      name: 'redis-single',
      what: 'Redis alone, an event a command',
      subject: 'redis',
      once: false,
      appIds: appIds('redis'),
      run: (appId) => append(appId, 1, 'single'),
    },
    {
      name: 'redis-bulk',
      what: 'Redis alone, 500 events a command',
      subject: 'redis',
      once: false,
      appIds: appIds('redis'),
      run: (appId) => append(appId, 500, 'bulk'),
    },
  ];
}
