// Runs migrations and admin commands inside the process of a test, since separate programs would spend most of their time loading.
// The tests of `npm start` test the programs themselves.

import { createAdministration } from '../../src/admin/administration.js';
import { runCommandLine } from '../../src/admin/command-line.js';
import { commandLineActor } from '../../src/admin/command-line-actor.js';
import { serversIn } from '../../src/clickhouse/client.js';
import { migrateServers } from '../../src/clickhouse/migrate.js';
import { connectServers, serversOf } from '../../src/clickhouse/servers.js';
import { readConfig } from '../../src/config.js';
import { administration as limits } from '../../src/contract/limits.js';
import { createLog } from '../../src/log.js';
import { connect, untilReady } from '../../src/redis/client.js';
import { checkServers, refreshShardTable } from '../../src/registry/shard-servers.js';

const readyMsMax = 30_000;

/** Migrates the ClickHouse that this environment names, as `npm run migrate` does. */
export async function runMigrations(env: NodeJS.ProcessEnv): Promise<void> {
  await migrateServers(serversIn(readConfig(env)));
}

/** Runs a command as `npm run admin -- …` does; settles with the JSON that it prints, rejects with its error message. */
export async function runAdmin(args: readonly string[], env: NodeJS.ProcessEnv): Promise<unknown> {
  const config = readConfig(env);
  const log = createLog('admin', 'silent');
  const redis = connect(config, log);
  const clickhouse = connectServers(serversIn(config));
  try {
    await untilReady(redis, readyMsMax);
    await refreshShardTable(redis, serversOf(clickhouse));
    await checkServers(serversOf(clickhouse));
    const administration = createAdministration(
      { redis, clickhouse, config, log, copyMsMax: limits.commandLineCopyMsMax },
      commandLineActor(),
    );
    return JSON.parse(JSON.stringify(await runCommandLine(administration, args)));
  } finally {
    redis.disconnect();
    await clickhouse.close();
  }
}
