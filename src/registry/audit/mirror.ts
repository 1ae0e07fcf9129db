// Moves lines of the audit log from Redis to ClickHouse, where read.ts reads them.

import { type ClickHouseClient, insertRows } from '../../clickhouse/client.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { auditLinesPerInsert } from '../../tuning.js';
import type { AuditLine } from './line.js';

/**
 * Moves the waiting lines. A process that copies changes to ClickHouse calls this after it has read the changes and before it writes
 * them, so that if Redis is lost no change survives without its line. Several processes may call it at once: a line that two of them
 * move counts once.
 */
export async function mirrorAudit(
  redis: Redis,
  clickhouse: ClickHouseClient,
  abort_signal?: AbortSignal,
): Promise<void> {
  let cursor = '0';
  do {
    const [next, entries] = await redis.hscan(registryKeys.audit, cursor, 'COUNT', auditLinesPerInsert);
    cursor = next;
    const names = entries.filter((_, at) => at % 2 === 0);
    if (names.length === 0) continue;
    const texts = entries.filter((_, at) => at % 2 === 1);
    const lines = texts.map((text) => JSON.parse(text) as AuditLine);
    await insertLines(clickhouse, lines, abort_signal);
    await runScript(
      redis,
      scripts.forgetAuditLines,
      [registryKeys.audit, registryKeys.auditByAccount],
      lines.flatMap(({ account_id }, at) => [names[at] as string, account_id]),
    );
  } while (cursor !== '0');
}

/** Settles when ClickHouse has the lines. */
export async function insertLines(
  clickhouse: ClickHouseClient,
  lines: readonly AuditLine[],
  abort_signal?: AbortSignal,
): Promise<void> {
  await insertRows(clickhouse, 'audit_log', lines.map(wellFormed), { ...(abort_signal && { abort_signal }) });
}

/** Replaces lone surrogates: for one of them ClickHouse would refuse all lines of the insert, again and again. */
function wellFormed(line: AuditLine): object {
  return Object.fromEntries(
    Object.entries(line).map(([name, value]) => [
      name,
      typeof value === 'string' ? value.toWellFormed() : value,
    ]),
  );
}
