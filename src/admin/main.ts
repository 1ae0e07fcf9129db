// `npm run admin -- …`: runs one command and prints its result as JSON.

import { serversIn } from '../clickhouse/client.js';
import { connectServers, serversOf } from '../clickhouse/servers.js';
import { readConfigBesideStart, readConfigOrExit } from '../config.js';
import { AdministrationError, Fault } from '../contract/errors.js';
import { administration as bounds } from '../contract/limits.js';
import { createLog, describeError } from '../log.js';
import { checkServers, refreshShardTable } from '../registry/shard-servers.js';
import { createAdministration } from './administration.js';
import { runCommandLine, runWithoutService } from './command-line.js';
import { commandLineActor } from './command-line-actor.js';
import { faultInWords, withRedis } from './own-stores.js';

const words = process.argv.slice(2);

/** Prints a result. If it says that a certificate is not genuine or the ledger does not add up, the process ends with an error code. */
function print(result: unknown): void {
  process.stdout.write(`${JSON.stringify(result, null, process.stdout.isTTY ? 2 : undefined)}\n`);
  const { genuine, balanced } = (result ?? {}) as { readonly genuine?: boolean; readonly balanced?: boolean };
  if (genuine === false || balanced === false) process.exitCode = 1;
}

function fail(error: unknown): void {
  process.stderr.write(
    `${error instanceof Fault ? error.message : `sluice: ${describeError(error).message}`}\n`,
  );
  process.exitCode = 1;
}

async function runWithService(): Promise<void> {
  const config = readConfigOrExit(readConfigBesideStart);
  const log = createLog('admin', config.logLevel === 'info' ? 'error' : config.logLevel);
  const clickhouse = connectServers(serversIn(config));
  try {
    await withRedis(config, log, async (redis) => {
      await refreshShardTable(redis, serversOf(clickhouse));
      await checkServers(serversOf(clickhouse));
      const context = { redis, clickhouse, config, log, copyMsMax: bounds.commandLineCopyMsMax };
      const say = (line: string) => process.stderr.write(`${line}\n`);
      const administration = createAdministration({ ...context, say }, commandLineActor(config.sudoUser));
      print(await runCommandLine(administration, words));
    });
  } catch (error) {
    const line = faultInWords(error, config);
    throw line === undefined ? error : new AdministrationError(line);
  } finally {
    await clickhouse.close();
  }
}

try {
  const result = runWithoutService(words);
  if (result === undefined) await runWithService();
  else print(result);
} catch (error) {
  fail(error);
}
