// Counts in the ledger what is known without a commit: refused and mended records, by environment. A process gathers counts and adds
// them to Redis once a second, so a crash loses a second of counts, but no record. Commits count what they decide themselves
// (redis/commit-3.lua).

import type { Mending } from '../../ingest/mend.js';
import type { Log } from '../../log.js';
import type { Redis } from '../../redis/client.js';
import { shardKeys, shardOf } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import type { Deployment } from '../../registry/documents.js';
import { repeat } from '../../repeat.js';
import { ledgerWrites } from '../../tuning.js';
import { countedField } from '../data-quality/rejected-records.js';

/** The terms that have no detail. */
type PlainTerm = 'limited' | 'ignored_fields' | 'unauthorized';

export type TermCounts = {
  add(appId: string, term: PlainTerm, count: number): void;
  addMendings(appId: string, found: ReadonlyMap<Mending, number>): void;
  /** Counts each refusal as rejected, by its reason. */
  addRejected(
    appId: string,
    refusals: readonly { readonly code: string; readonly field?: string | undefined }[],
  ): void;
  /** Writes the remaining counts. */
  close(): Promise<void>;
};

export function keepTermCounts(redis: Redis, deployment: () => Deployment | undefined, log: Log): TermCounts {
  /** By environment, then by field. */
  let pending = new Map<string, Map<string, number>>();

  function add(appId: string, term: string, count: number): void {
    const ofEnvironment = pending.get(appId) ?? new Map<string, number>();
    const field = `${appId} - ${term}`;
    ofEnvironment.set(field, (ofEnvironment.get(field) ?? 0) + count);
    pending.set(appId, ofEnvironment);
  }

  async function write(): Promise<void> {
    const known = deployment();
    if (pending.size === 0 || known === undefined || redis.status !== 'ready') return;
    const batch = pending;
    pending = new Map();
    const byShard = new Map<number, (string | number)[]>();
    for (const [appId, fields] of batch) {
      const shard = shardOf(appId, known.shards);
      byShard.set(shard, [...(byShard.get(shard) ?? []), ...[...fields].flat()]);
    }
    const lost = (error: unknown) => log.warn({ error }, 'counts of environments are lost');
    // On a cluster, one shard may fail alone.
    for (const [shard, fields] of byShard) await countIn(shard, fields, known.epoch).catch(lost);
  }

  async function countIn(shard: number, fields: readonly (string | number)[], epoch: string): Promise<void> {
    const keys = [shardKeys.state(shard), shardKeys.ledgerMinutes(shard)];
    for (let at = 0; at < fields.length; at += 2 * ledgerWrites.fieldsAtOnceMax)
      await runScript(redis, scripts.countTerms, keys, [
        epoch,
        ledgerWrites.fieldsOfMinuteMax,
        ...fields.slice(at, at + 2 * ledgerWrites.fieldsAtOnceMax),
      ]);
  }

  const { stop } = repeat({ work: write, everyMs: ledgerWrites.everyMs });
  return {
    add,
    addMendings: (appId, found) => {
      for (const [mending, count] of found) add(appId, `mended ${mending}`, count);
    },
    addRejected: (appId, refusals) => {
      for (const { code, field } of refusals)
        add(appId, `rejected ${code} ${field === undefined ? '' : countedField(field)}`, 1);
    },
    close: async () => {
      await stop();
      await write();
    },
  };
}
