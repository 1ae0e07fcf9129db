// The references by which callers name their requests: the same reference with the same users is the same request. To recognise it, Redis
// and ClickHouse keep a keyed hash of the list while the reference is remembered. The hash expires in both, and does not reveal the users.

import { createHash, createHmac } from 'node:crypto';
import { streamRows } from '../../clickhouse/answers.js';
import { type ClickHouseClient, insertRows } from '../../clickhouse/client.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { transactionValues } from '../../redis/transactions.js';
import { inScriptCalls, type Loading } from '../../registry/loading.js';
import type { DeletionRequest } from './request.js';
import type { Target } from './targets.js';

/** The keyed hash of a set of users: the same in any order. */
export function hashOfList(secret: string, targets: readonly Target[]): string {
  const key = createHmac('sha256', secret).update('lists of deletions').digest();
  return createHmac('sha256', key).update(JSON.stringify(targets.toSorted())).digest('hex');
}

/** The digest under which Redis and ClickHouse store a reference. */
export function digestOfReference(accountId: string, reference: string): string {
  return createHash('sha256').update(`${accountId}\0${reference}`).digest('hex');
}

/** Copies the references of requests to ClickHouse. May be repeated. */
export async function keepReferences(
  redis: Redis,
  clickhouse: ClickHouseClient,
  requests: readonly DeletionRequest[],
): Promise<void> {
  const values: object[] = [];
  for (const { account_id, reference, deletion_request_id: requestId } of requests) {
    if (reference === undefined) continue;
    const digest = digestOfReference(account_id, reference);
    const key = registryKeys.deletionReference(digest);
    const [kept, leftMs] = transactionValues(await redis.multi().get(key).pttl(key).exec());
    const [hash = '', id] = String(kept ?? '').split(' ');
    // The reference has expired since, or names a later request.
    if (id !== requestId) continue;
    values.push({
      reference_digest: digest,
      request_id: requestId,
      hash,
      expires_at: new Date(Date.now() + Number(leftMs)).toISOString().slice(0, -1),
    });
  }
  await insertRows(clickhouse, 'deletion_references', values);
}

export async function restoreReferences(clickhouse: ClickHouseClient, loading: Loading): Promise<void> {
  const rows = streamRows<Record<string, string>>(clickhouse, {
    query: `SELECT reference_digest, request_id, hash, toString(toUnixTimestamp64Milli(expires_at)) AS expires_ms
      FROM deletion_references FINAL WHERE expires_at > now64(3)`,
  });
  for await (const call of inScriptCalls(rows, () => 200)) {
    const commands = call.flatMap(({ reference_digest: digest = '', request_id: id, hash, expires_ms }) => {
      const leftMs = Number(expires_ms) - Date.now();
      const key = registryKeys.deletionReference(digest);
      return leftMs < 1 ? [] : [['SET', key, `${hash} ${id}`, 'PX', leftMs]];
    });
    await loading.write(commands);
  }
}
