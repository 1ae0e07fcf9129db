// What does it cost to delete expired events? A run of retention deletes a month of them: it drops the whole partition if that holds nothing
// else, and otherwise deletes only the expired rows. The bench itself runs the worker's code.

import { pino } from 'pino';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { noCrash } from '../../src/crash-point.js';
import { registryKeys } from '../../src/redis/keys.js';
import { retentionRuns } from '../../src/tuning.js';
import { createEnvironments } from '../../test/harness/accounts.js';
import { earliestClock, expireRows, type RetentionContext } from '../../workers/retention.js';
import type { Context } from '../context.js';
import type { Deployment } from '../deployment/deployment.js';
import { insertEvents } from '../deployment/made-events.js';
import { startMeter, sumCpu } from '../deployment/meter.js';
import { mergesEnded, numberOf } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { figure } from '../figures.js';

/** `rows` are deleted, and `beside` rows are kept in the same partition. CPU is in s, of the deployment and of the worker's code. */
export type RetentionRun = Readonly<Record<'rows' | 'beside' | 'seconds' | 'cpu', number>>;

/** Each run has its own month, in which nothing else is stored. */
const firstMonth = { year: 2020, month: 0 };

/** Runs with whole partitions, then with partitions that also have rows to keep. */
export async function runRetention({ deployment, options, progress }: Context, rows: number) {
  const { sluice, redis, cpu } = deployment;
  // Keeps the worker from starting its own run.
  await redis.set(registryKeys.retentionRun, 'the bench', 'PX', retentionRuns.everyMs);
  const [expired = '', kept = ''] = await createEnvironments(sluice, [['--retain-days', '30'], []]);
  const clickhouse = connectClickHouse({ url: sluice.clickhouse.testerUrl, database: sluice.database });
  const retention: RetentionContext = {
    redis,
    clickhouse,
    config: { clickhouseDatabase: sluice.database } as RetentionContext['config'],
    shards: 1,
    epoch: (await redis.get(registryKeys.epoch)) ?? '',
    crash: noCrash,
    log: pino({ level: 'silent' }),
  };
  const count = (appId: string) => numberOf(deployment, 'count()', `stored_events WHERE app_id = '${appId}'`);
  const mutations = () => numberOf(deployment, 'count()', "system.mutations WHERE table = 'stored_events'");
  const found: RetentionRun[] = [];
  try {
    for (let run = 0; run < 2 * options.repeats; run += 1) {
      const beside = run < options.repeats ? 0 : rows;
      const month = Date.UTC(firstMonth.year, firstMonth.month + run, 2);
      await fill(deployment, expired, month, rows);
      await fill(deployment, kept, month, beside);
      await mergesEnded(deployment);
      const [others, mutationsBefore] = [await count(kept), await mutations()];
      const nowMs = await earliestClock(retention);
      const read = startMeter(cpu);
      const outcome = await expireRows(retention, nowMs);
      const { seconds, used, own } = read();
      if (beside > 0 !== (await mutations()) > mutationsBefore) {
        throw new BenchError('the month was not deleted in the expected way');
      }
      const left = await count(expired);
      if (outcome !== 'done' || left > 0 || (await count(kept)) !== others) {
        throw new BenchError(
          `the run of retention ended with ${outcome}; ${left} rows are left, or others are gone`,
        );
      }
      found.push({ rows, beside, seconds, cpu: (sumCpu(used) + own) / 1e6 });
      progress.say(
        `desk: ${figure(rows)} expired rows beside ${figure(beside)}: deleted in ${figure(seconds)} s`,
      );
    }
  } finally {
    await clickhouse.close();
  }
  return found;
}

/** Events of many users, accepted in one month. */
function fill(deployment: Deployment, appId: string, monthMs: number, rows: number): Promise<void> {
  return insertEvents(deployment, 0, rows, (_from, insert) => ({
    segment: String(BigInt(monthMs + 60_000 * insert) * 1000n),
    appId: `'${appId}'`,
    event: "'Order Completed'",
    identity: "concat('user-', toString(n % 200000), '@example.com')",
    properties: "map('order_id', concat('order-', toString(n)), 'currency', 'EUR')",
  }));
}
