// Copies the registry, deletion requests and suppressions to ClickHouse, moves the audit log there, and removes users' names that
// are no longer needed.

import { reachableClients } from '../src/clickhouse/servers.js';
import { userExports } from '../src/contract/limits.js';
import { usersUnjoined } from '../src/metrics.js';
import { purgeStrayTargets } from '../src/privacy/deletion/kept-targets.js';
import { readUnfinishedMembers } from '../src/privacy/deletion/request.js';
import { dropTables, previewPrefix } from '../src/privacy/deletion/round-tables.js';
import { exportPrefix } from '../src/privacy/export/tables.js';
import { moveJoins } from '../src/privacy/suppression/joins.js';
import { registryKeys } from '../src/redis/keys.js';
import { takeTurn } from '../src/redis/lease.js';
import { readOnReplicas } from '../src/redis/replicas.js';
import { copyChanges, listEarlier } from '../src/registry/outbox.js';
import { strayPreviewMsMin } from '../src/tuning.js';
import type { WorkerContext } from './context.js';

const strayTargetsEveryMs = 30_000;
/** Longer than any download lasts. Tables older than this were left by a process that was killed. */
const strayExportSecondsMin = Math.ceil((2 * userExports.downloadMsMax) / 1_000);

/** Copies what has changed since the last call. Call it once a second; several workers may do it at once. */
export async function writeSecondCopies(context: WorkerContext): Promise<void> {
  const { redis, clickhouse, crash } = context;
  const copies = [
    async () => {
      const unjoined = await moveJoins(context, Array(context.shards).keys(), 1);
      if (unjoined > 0) usersUnjoined.inc(unjoined);
    },
    () => copyChanges(redis, clickhouse, { crash }),
    () => purgeStrays(context),
  ];
  // A copy that fails must not hold up the others.
  const errors: unknown[] = [];
  for (const copy of copies) await copy().catch((error: unknown) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}

/**
 * Twice a minute, removes what killed processes left: targets of complete requests, and tables of previews and downloads. Also lists what
 * processes of an earlier build, which may still run, have left uncopied.
 */
async function purgeStrays({ redis, clickhouse, epoch }: WorkerContext): Promise<void> {
  if (!(await takeTurn(redis, registryKeys.strayTargets, strayTargetsEveryMs))) return;
  await listEarlier(redis);
  for (const [, client] of await reachableClients(clickhouse)) {
    await dropTables(client, [previewPrefix], strayPreviewMsMin / 1_000);
    await dropTables(client, [exportPrefix()], strayExportSecondsMin);
  }
  await purgeStrayTargets(clickhouse, async () => {
    const read = () => readUnfinishedMembers(redis, epoch);
    const pending = await readOnReplicas(redis, registryKeys.deletions, read);
    return new Set(pending.map(({ requestId }) => requestId));
  });
}
