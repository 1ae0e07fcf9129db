// The registry's second copy, in ClickHouse: written within seconds of a change, read when Redis was emptied.

import { inBatches } from '../batches.js';
import { readRows } from '../clickhouse/answers.js';
import { type ClickHouseClient, endingAfter, insertRows } from '../clickhouse/client.js';
import { Fault, StateNotLoaded } from '../contract/errors.js';
import { type CrashPoint, noCrash } from '../crash-point.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { stateLoads } from '../tuning.js';
import { succeeds } from '../wait.js';
import { mirrorAudit } from './audit/mirror.js';

/** The keys of documents that have a second copy. */
export type MirroredKeys = {
  readonly version: string;
  readonly unmirrored: string;
  readonly documents: string;
};

export type Unmirrored = {
  readonly version: string;
  /** Empty if the document was removed. */
  readonly documents: readonly { readonly key: string; readonly document: string }[];
};

/**
 * Reads the changes that ClickHouse lacks, and in the same step checks that Redis holds the deployment: in an emptied Redis every document
 * would seem to be removed. Throws StateNotLoaded if Redis does not hold it. `version`: whether to raise the version, for copies that each
 * need one of their own. `of`: all changes, as they are at one time, or a list of keys, of which it reads the first ones.
 */
export async function readUnmirrored(
  redis: Redis,
  keys: MirroredKeys,
  version: 'keep' | 'raise',
  of: 'all' | readonly string[],
): Promise<Unmirrored> {
  const reply = (await runScript(
    redis,
    scripts.readUnmirrored,
    [registryKeys.epoch, keys.version, keys.unmirrored, keys.documents],
    [version, ...(of === 'all' ? [of] : [stateLoads.bytesPerCallMax, ...of])],
  )) as string[] | null;
  if (reply === null) throw new StateNotLoaded();
  const documents: { key: string; document: string }[] = [];
  for (let i = 1; i < reply.length; i += 2) {
    documents.push({ key: reply[i] as string, document: reply[i + 1] as string });
  }
  return { version: reply[0] as string, documents };
}

/**
 * Copies the documents that have changed; settles with how many. Several processes may call it at once. Throws
 * StateNotLoaded when Redis does not hold the deployment.
 */
export async function mirrorRegistry(
  redis: Redis,
  clickhouse: ClickHouseClient,
  crash: CrashPoint = noCrash,
  abort_signal?: AbortSignal,
): Promise<number> {
  // All in one insert: a change may concern several documents, and half a change must not be loaded after a loss.
  const { version, documents } = await readUnmirrored(redis, registryKeys, 'keep', 'all');
  if (documents.length === 0) return 0;
  await mirrorAudit(redis, clickhouse, abort_signal);
  const rows = documents.map(({ key, document }) => ({ document_key: key, document, version }));
  await insertRows(clickhouse, 'registry', rows, { ...(abort_signal && { abort_signal }) });
  crash('registry_copied');
  for (const copied of inBatches(documents, stateLoads.documentsPerCallMax))
    await runScript(
      redis,
      scripts.mirrored,
      [registryKeys.version, registryKeys.unmirrored],
      [version, ...Array.from(copied, ({ key }) => key)],
    );
  return documents.length;
}

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
  return succeeds(mirrorRegistry(redis, clickhouse, noCrash, AbortSignal.timeout(msMax)));
}

/** Rejects with NotCopied if ClickHouse does not answer in time: then a change that must be copied is not made at all. */
export async function assertCopyable(clickhouse: ClickHouseClient, msMax: number): Promise<void> {
  const answer = clickhouse.command({ query: 'SELECT 1', ...endingAfter(msMax) });
  if (!(await succeeds(answer))) throw new NotCopied(false);
}

export type MirroredRegistry = { readonly version: string; readonly documents: Record<string, string> };

/** The second copy: every document's latest form, and the highest version. */
export async function readMirror(clickhouse: ClickHouseClient): Promise<MirroredRegistry> {
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
