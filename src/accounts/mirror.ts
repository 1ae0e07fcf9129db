// The registry's second copy, in ClickHouse: written within seconds of a change, read when Redis was emptied.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { type CrashPoint, noCrash } from '../crash-point.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { readVersion } from './registry.js';

/** Copies the documents that changed since; settles with how many. May be called at once by several. */
export async function mirrorRegistry(
  redis: Redis,
  clickhouse: ClickHouseClient,
  crash: CrashPoint = noCrash,
): Promise<number> {
  const version = await readVersion(redis);
  const keys = await redis.smembers(registryKeys.unmirrored);
  if (keys.length === 0) return 0;
  const documents = await redis.hmget(registryKeys.documents, ...keys);
  await clickhouse.insert({
    table: 'registry',
    values: keys.map((key, index) => ({ document_key: key, document: documents[index] ?? '', version })),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
  crash('registry_copied');
  await runScript(
    redis,
    scripts.mirrored,
    [registryKeys.version, registryKeys.unmirrored],
    [version, ...keys],
  );
  return keys.length;
}

export type MirroredRegistry = { readonly version: string; readonly documents: Record<string, string> };

/** The second copy: every document's latest form, and the highest version. */
export async function readMirror(clickhouse: ClickHouseClient): Promise<MirroredRegistry> {
  const result = await clickhouse.query({
    query: `SELECT document_key, argMax(registry.document, (registry.version, written_at)) AS document, toString(max(registry.version)) AS version
      FROM registry GROUP BY document_key`,
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ document_key: string; document: string; version: string }>();
  const documents: Record<string, string> = {};
  let version = 0n;
  for (const row of rows) {
    if (row.document !== '') documents[row.document_key] = row.document;
    if (BigInt(row.version) > version) version = BigInt(row.version);
  }
  return { version: version.toString(), documents };
}
