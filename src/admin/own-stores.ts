// The deployment's stores as a command on this machine finds them: that they are those of its DATA_DIR, and what it prints when one does
// not answer: the variable that sets the store's address.

import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { readRows } from '../clickhouse/answers.js';
import { type ClickHouseClient, isConnectionFault } from '../clickhouse/client.js';
import type { Config } from '../config.js';
import { AdministrationError } from '../contract/errors.js';
import type { Log } from '../log.js';
import { connect, mastersOf, type Redis, untilReady } from '../redis/client.js';
import { isConnectionLost } from '../redis/faults.js';

const remedy = 'start Sluice, or set DATA_DIR as it was at the start,';

/** Only these: other errors have codes too, such as unreadable files. */
const networkCodes = new Set([
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['ENOTFOUND', 'EAI_AGAIN'],
]);

/** Runs a command with the deployment's Redis. Rejects with AdministrationError if none answers, or that of another DATA_DIR. */
export async function withRedis(config: Config, log: Log, run: (redis: Redis) => Promise<void>) {
  const redis = connect(config, log);
  try {
    await untilReady(redis, 5_000).catch(() => {
      throw new AdministrationError(
        config.redisEmbedded
          ? `REDIS_PORT: no Redis answered within 5 s: ${remedy} or REDIS_PORT to its port`
          : 'REDIS_URL: Redis did not answer within 5 s',
      );
    });
    if (config.redisEmbedded) {
      const [, folder] = ((await mastersOf(redis)[0]?.config('GET', 'dir')) ?? []) as string[];
      assertOwn('Redis', 'REDIS_PORT', folder, config);
    }
    await run(redis);
  } finally {
    redis.disconnect();
  }
}

/** Rejects with AdministrationError if an embedded ClickHouse that answers belongs to another DATA_DIR. */
export async function checkClickHouse(clickhouse: ClickHouseClient, config: Config): Promise<void> {
  if (!config.clickhouseEmbedded) return;
  const query = `SELECT path FROM system.disks WHERE name = 'default'`;
  const [disk] = await readRows<{ readonly path: string }>(clickhouse, { query });
  assertOwn('ClickHouse', 'CLICKHOUSE_PORT', disk?.path, config);
}

/** A copy of a DATA_DIR has the passwords of the original, and perhaps its ports. A folder that is not on this machine is another one. */
function assertOwn(store: string, variable: string, folder = '', { dataDir }: Config): void {
  const [own, found] = [dataDir, dirname(folder)].map((path) => statSync(path, { throwIfNoEntry: false }));
  if (found === undefined || found.ino !== own?.ino || found.dev !== own.dev)
    throw new AdministrationError(
      `${variable}: the ${store} there belongs to DATA_DIR ${dirname(folder)}, not to ${dataDir}: ${remedy} or ${variable} to its port`,
    );
}

/** One line for an error that means that a store does not answer; undefined for other errors. */
export function faultInWords(error: unknown, config: Config): string | undefined {
  if (isConnectionLost(error))
    return `${config.redisEmbedded ? 'REDIS_PORT' : 'REDIS_URL'}: Redis no longer answers; what the command began may be done`;
  const code = String((error as { code?: unknown }).code);
  if (!isConnectionFault(error) || !networkCodes.has(code)) return undefined;
  // A URL may hold a password.
  const where = config.clickhouseUrls.map((url) => new URL(url).host).join(', ');
  return config.clickhouseEmbedded
    ? `CLICKHOUSE_PORT: no ClickHouse answers on ${where} (${code}): ${remedy} or CLICKHOUSE_PORT to its port`
    : `CLICKHOUSE_URL: no ClickHouse answers on ${where} (${code})`;
}
