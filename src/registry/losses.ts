// A new Redis primary may lack acknowledged commits, if the former one was lost together with the replicas that had them. Each API process
// notices its own missing commits. Then this Redis counts as emptied, like one that was set back (witness.ts), or the service continues
// with what is left (`REDIS_LOSS`).

import type { Log } from '../log.js';
import { commitsLost } from '../metrics.js';
import type { Redis } from '../redis/client.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { toleratesLoss } from '../redis/replicas.js';
import { runScript, scripts } from '../redis/scripts.js';
import type { Deployment } from './documents.js';

/** Higher than any witness's number, so all of Redis counts as older. */
const aboveAll = Number.MAX_SAFE_INTEGER;

export function createLosses(redis: Redis, deployment: () => Deployment | undefined, log: Log) {
  let total = 0;

  async function setAside(): Promise<void> {
    const known = deployment();
    if (known === undefined) return;
    const { epoch, witness, version, restoringBackup } = registryKeys;
    const keys = [epoch, witness, version, restoringBackup];
    await runScript(redis, scripts.witnessRegistry, keys, [aboveAll, 0]);
    const shards = Array.from({ length: known.shards }, (_, shard) => [shardKeys.state(shard)]);
    await Promise.all(
      shards.map((keys) => runScript(redis, scripts.witnessShard, keys, [known.epoch, aboveAll, 0])),
    );
  }

  return {
    /** Reports missing commits of this process. Settles when Redis accepts nothing more, or when the process may continue. */
    note: async (shard: number, commits: number): Promise<void> => {
      const goesOn = toleratesLoss(redis);
      log.error(
        { shard, commits, goes_on: goesOn },
        'records_lost: the new primary of redis lacks acknowledged commits',
      );
      if (!goesOn)
        await setAside().catch((error: unknown) => {
          log.error({ error }, 'redis lacks records and could not be set aside yet');
          throw error;
        });
      total += commits;
      commitsLost.inc(commits);
    },
    /** How many this process has noticed. */
    commits: () => total,
  };
}
