// What ClickHouse lacks of what Redis must not lose: lines of the audit log, changes of suppressions, documents of the registry and
// deletion requests. A script that changes one of them lists it in the same step, under its kind, and it stays listed until it is copied
// as it then is: a hundred changes of one document are one copy. A copy is of one moment of Redis, and begins with the first kind:
// ClickHouse has no change without its line.

import { hash } from 'node:crypto';
import { inBatches } from '../batches.js';
import { type ClickHouseClient, insertRows } from '../clickhouse/client.js';
import { StateNotLoaded } from '../contract/errors.js';
import { type CrashPoint, noCrash } from '../crash-point.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { stateLoads } from '../tuning.js';
import { rowOfLine } from './audit/audit.js';

/** The kinds as the scripts know them. */
export const kindsOfCopies = { auditLine: 1, suppressions: 2, document: 3, deletion: 4 } as const;

/** The names are those of the texts in Redis. `rowsOf` gets an empty text for what was removed. */
type Kind = {
  readonly kind: number;
  readonly table: string;
  readonly rowsOf: (name: string, text: string, version: string) => readonly object[];
};

const kinds: readonly [Kind, ...Kind[]] = [
  {
    kind: kindsOfCopies.auditLine,
    table: 'audit_log',
    rowsOf: (_, text) => (text === '' ? [] : [rowOfLine(JSON.parse(text))]),
  },
  {
    kind: kindsOfCopies.suppressions,
    table: 'suppressed_names',
    rowsOf: (_, text) => rowsOfSuppressions(text),
  },
  {
    kind: kindsOfCopies.document,
    table: 'registry',
    rowsOf: (document_key, document, version) => [{ document_key, document, version }],
  },
  {
    kind: kindsOfCopies.deletion,
    table: 'deletion_requests',
    rowsOf: (id, text, version) => (text === '' ? [] : [rowOfDeletion(id, text, Number(version))]),
  },
];

type CopyOptions = {
  /** Whoever waits for changes of one kind waits for no other; lines are always copied first. By default all are copied. */
  readonly kind?: number;
  readonly crash?: CrashPoint;
  readonly abort_signal?: AbortSignal;
};

/**
 * Copies what ClickHouse lacks, which then has every change that was made before the call. Several processes may call it at once. Throws
 * StateNotLoaded when Redis does not hold the deployment.
 */
export async function copyChanges(
  redis: Redis,
  clickhouse: ClickHouseClient,
  { kind: wanted = 0, crash = noCrash, abort_signal }: CopyOptions = {},
): Promise<void> {
  const { epoch, version, copyVersion, uncopied, auditByAccount } = registryKeys;
  const { audit, uncopiedSuppressions, documents, deletions } = registryKeys;
  const texts = [audit, uncopiedSuppressions, documents, deletions];
  const read = [epoch, version, copyVersion, uncopied, ...texts];
  const { documentsPerCallMax, bytesPerCallMax } = stateLoads;
  const args = [documentsPerCallMax, bytesPerCallMax, wanted];
  for (let isAll = false; !isAll; ) {
    const reply = await runScript(redis, scripts.readUncopied, read, args);
    if (reply === null) throw new StateNotLoaded();
    const [copiedAs, ofRegistry, last, ...words] = reply as [string, string, number, ...string[]];
    isAll = last === 1;
    const copied = Array.from({ length: words.length / 3 }, (_, at) => words.slice(3 * at, 3 * at + 3));
    if (copied.length === 0) return;
    const copy = async ({ kind, table, rowsOf }: Kind) => {
      const ofKind = copied.filter(([, its]) => its === String(kind));
      const rows = ofKind.flatMap(([name = '', , text = '']) => rowsOf(name, text, copiedAs));
      if (rows.length > 0)
        await insertRows(clickhouse, table, rows, { ...(abort_signal && { abort_signal }) });
      if (ofKind.length > 0) crash('changes_copied');
      for (const some of inBatches(ofKind, documentsPerCallMax)) {
        const done = some.flatMap(([name = '', , text = '']) => [name, hash('sha1', text)]);
        const keys = [version, uncopied, ...texts, auditByAccount];
        await runScript(redis, scripts.copied, keys, [ofRegistry, ...done]);
      }
    };
    const [lines, ...others] = kinds;
    await copy(lines);
    // A table that ClickHouse does not write into holds up no other kind.
    const errors: unknown[] = [];
    for (const kind of others) await copy(kind).catch((error: unknown) => errors.push(error));
    if (errors.length > 0) throw errors[0];
  }
}

/** Lists what ClickHouse may lack, even if it has not changed. */
export async function listUncopied(redis: Redis, kind: number, names: readonly string[]): Promise<void> {
  for (const some of inBatches(names, stateLoads.documentsPerCallMax))
    await redis.zadd(registryKeys.uncopied, ...some.flatMap((name) => [kind, name]));
}

/** Lists what processes of builds before this list keep in sets of their own, and lines that they list nowhere. May be repeated. */
export async function listEarlier(redis: Redis): Promise<void> {
  const { auditLine, suppressions, document, deletion } = kindsOfCopies;
  const { audit, uncopied } = registryKeys;
  if ((await redis.hlen(audit)) > (await redis.zcount(uncopied, auditLine, auditLine)))
    await listUncopied(redis, auditLine, await redis.hkeys(audit));
  for (const [kind, set] of [
    [document, '{registry}:unmirrored'],
    [deletion, '{registry}:deletions_unmirrored'],
  ] as const)
    for (const some of inBatches(await redis.smembers(set), stateLoads.documentsPerCallMax))
      await redis
        .multi()
        .zadd(uncopied, ...some.flatMap((name) => [kind, name]))
        .srem(set, ...some)
        .exec();
  const mirrored = await redis.hget(registryKeys.suppressions, 'mirrored');
  if (mirrored === null) return;
  const changes = await redis.zrangebyscore(registryKeys.suppressionChanges, `(${mirrored}`, '+inf');
  for (const change of changes) {
    const [version = ''] = change.split(' ', 1);
    await redis.hset(registryKeys.uncopiedSuppressions, version, change);
    await listUncopied(redis, suppressions, [version]);
  }
  await redis.hdel(registryKeys.suppressions, 'mirrored');
}

/** A change as change-suppressions-8.lua writes it. */
function rowsOfSuppressions(change: string): object[] {
  const [head = '', added = '', removed = ''] = change.split('\n');
  const [version = '', account_id = ''] = head.split(' ');
  const rows = (line: string, suppressed: 0 | 1) =>
    line === ''
      ? []
      : line.split(' ').map((pair) => {
          const [name, root] = pair.split('|');
          return { account_id, name, root, version, suppressed };
        });
  return [...rows(added, 1), ...rows(removed, 0)];
}

/** The completed form of a request outranks every pending form, even one that another worker copies later. */
export function rowOfDeletion(request_id: string, document: string, version: number): object {
  const { status } = JSON.parse(document) as { readonly status: string };
  return { request_id, document, version: status === 'complete' ? completeOffset + version : version };
}

/** Above the microseconds of this century, and so that sums are exact. */
export const completeOffset = 2 ** 52;
