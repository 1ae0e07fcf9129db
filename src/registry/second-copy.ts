// The registry's second copy, in ClickHouse: written within seconds of a change (outbox.ts), read when Redis was emptied.

import { readRows } from '../clickhouse/answers.js';
import { type ClickHouseClient, endingAfter } from '../clickhouse/client.js';
import { Fault } from '../contract/errors.js';
import type { Redis } from '../redis/client.js';
import { succeeds } from '../wait.js';
import { copyChanges, kindsOfCopies } from './outbox.js';

/** ClickHouse lacks a change, so a loss of Redis would undo it. `holds`: the change has been made. */
export class NotCopied extends Fault {
  readonly outcome: 'unknown' | 'overloaded';

  constructor(holds: boolean) {
    super(
      holds
        ? 'the change holds now, but ClickHouse, which keeps the second copy, did not take it in time: a loss of Redis would undo it until a worker has copied it'
        : 'ClickHouse, which keeps the second copy, does not answer: nothing is changed; try again when it is back',
    );
    this.outcome = holds ? 'unknown' : 'overloaded';
  }
}

/** Whether all changes of the registry were copied to ClickHouse in time. If not, a worker copies them later. */
export function isCopiedInTime(redis: Redis, clickhouse: ClickHouseClient, msMax: number): Promise<boolean> {
  return succeeds(
    copyChanges(redis, clickhouse, {
      kind: kindsOfCopies.document,
      abort_signal: AbortSignal.timeout(msMax),
    }),
  );
}

/** Rejects with NotCopied if ClickHouse does not answer in time: then a change that must be copied is not made at all. */
export async function assertCopyable(clickhouse: ClickHouseClient, msMax: number): Promise<void> {
  const answer = clickhouse.command({ query: 'SELECT 1', ...endingAfter(msMax) });
  if (!(await succeeds(answer))) throw new NotCopied(false);
}

export type CopiedRegistry = { readonly version: string; readonly documents: Record<string, string> };

/** The second copy: every document's latest form, and the highest version. */
export async function readSecondCopy(clickhouse: ClickHouseClient): Promise<CopiedRegistry> {
  const rows = await readRows<{ document_key: string; document: string; version: string }>(clickhouse, {
    query: `SELECT document_key, argMax(registry.document, (registry.version, written_at)) AS document, toString(max(registry.version)) AS version
      FROM registry GROUP BY document_key`,
  });
  const documents: Record<string, string> = {};
  let version = 0n;
  for (const row of rows) {
    if (row.document !== '') documents[row.document_key] = row.document;
    if (BigInt(row.version) > version) version = BigInt(row.version);
  }
  return { version: version.toString(), documents };
}
