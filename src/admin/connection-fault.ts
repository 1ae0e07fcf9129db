// What a command prints when a store does not answer, or another one answers: the variable that sets the store's address.

import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { isConnectionFault } from '../clickhouse/client.js';
import type { Config } from '../config.js';
import { AdministrationError } from '../contract/errors.js';
import { mastersOf, type Redis } from '../redis/client.js';

const remedy = 'start Sluice, or set DATA_DIR as it was at the start,';

/** Only these: other errors have codes too, such as unreadable files. */
const networkCodes = new Set([
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['ENOTFOUND', 'EAI_AGAIN'],
]);

/** One line for an error that means that ClickHouse does not answer; undefined for other errors. */
export function connectionFaultInWords(error: unknown, config: Config): string | undefined {
  if (!isConnectionFault(error) || !networkCodes.has(codeOf(error))) return undefined;
  // A URL may hold a password.
  const where = config.clickhouseUrls.map((url) => new URL(url).host).join(', ');
  return config.clickhouseEmbedded
    ? `CLICKHOUSE_PORT: no ClickHouse answers on ${where} (${codeOf(error)}): ${remedy} or CLICKHOUSE_PORT to its port`
    : `CLICKHOUSE_URL: no ClickHouse answers on ${where} (${codeOf(error)})`;
}

/** One line for a Redis that did not answer. */
export function redisFaultInWords({ redisEmbedded }: Config, within: string): string {
  return redisEmbedded
    ? `REDIS_PORT: no Redis answered within ${within}: ${remedy} or REDIS_PORT to its port`
    : `REDIS_URL: Redis did not answer within ${within}`;
}

/**
 * Rejects with AdministrationError if the embedded Redis that answers belongs to another DATA_DIR: a copy of a DATA_DIR has the passwords of
 * the original, and perhaps its ports.
 */
export async function checkDataDir(redis: Redis, { redisEmbedded, dataDir }: Config): Promise<void> {
  if (!redisEmbedded) return;
  const [, folder = ''] = ((await mastersOf(redis)[0]?.config('GET', 'dir')) ?? []) as string[];
  const [own, found] = [dataDir, dirname(folder)].map((path) => statSync(path, { throwIfNoEntry: false }));
  if (found !== undefined && (found.ino !== own?.ino || found.dev !== own.dev))
    throw new AdministrationError(
      `REDIS_PORT: the Redis there belongs to DATA_DIR ${dirname(folder)}, not to ${dataDir}: ${remedy} or REDIS_PORT to its port`,
    );
}

function codeOf(error: unknown): string {
  return String((error as { code?: unknown }).code);
}
