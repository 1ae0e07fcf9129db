// Writes the second copies of the registry, of deletion requests and of suppressions to ClickHouse, moves the audit log there,
// and removes names of users that are no longer needed.

import { reachableServers, serversOf } from '../src/clickhouse/servers.js';
import { userExports } from '../src/contract/limits.js';
import { usersUnjoined } from '../src/metrics.js';
import { purgeStrayTargets } from '../src/privacy/deletion/kept-targets.js';
import { mirrorDeletions } from '../src/privacy/deletion/mirror.js';
import { readUnfinishedMembers } from '../src/privacy/deletion/request.js';
import { dropStrayPreviews } from '../src/privacy/deletion/round-tables.js';
import { dropExportTables, exportPrefix } from '../src/privacy/export/tables.js';
import { moveSomeJoins } from '../src/privacy/suppression/joins.js';
import { mirrorSuppressions } from '../src/privacy/suppression/mirror.js';
import { registryKeys } from '../src/redis/keys.js';
import { takeTurn } from '../src/redis/lease.js';
import { mirrorAudit } from '../src/registry/audit/mirror.js';
import { mirrorRegistry } from '../src/registry/mirror.js';
import { strayPreviewMsMin } from '../src/tuning.js';
import type { WorkerContext } from './context.js';

const strayTargetsEveryMs = 30_000;
/** Every download has ended by then. If its tables still exist, its process was killed before it could drop them. */
const strayExportSecondsMin = Math.ceil((2 * userExports.downloadMsMax) / 1_000);

/** Copies what has changed since the last call. To be called once a second; several workers may do it at once. */
export async function writeSecondCopies(context: WorkerContext): Promise<void> {
  const { redis, clickhouse, crash } = context;
  const copies = [
    () => mirrorAudit(redis, clickhouse),
    () => mirrorRegistry(redis, clickhouse, crash),
    () => mirrorDeletions(redis, clickhouse, crash),
    async () => {
      const unjoined = await moveSomeJoins(context);
      if (unjoined > 0) usersUnjoined.inc(unjoined);
      await mirrorSuppressions(redis, clickhouse);
    },
    () => purgeStrays(context),
  ];
  // What cannot be copied must not hold up the others.
  const errors: unknown[] = [];
  for (const copy of copies) await copy().catch((error: unknown) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}

/** Twice a minute removes what stopped processes left: targets of complete requests, and tables of previews and downloads. */
async function purgeStrays({ redis, clickhouse, epoch }: WorkerContext): Promise<void> {
  if (!(await takeTurn(redis, registryKeys.strayTargets, strayTargetsEveryMs))) return;
  const servers = serversOf(clickhouse);
  const there = await reachableServers(servers);
  for (const client of servers.all.filter((_, number) => there.has(number))) {
    await dropStrayPreviews(client, strayPreviewMsMin / 1_000);
    await dropExportTables(client, [exportPrefix()], strayExportSecondsMin);
  }
  await purgeStrayTargets(clickhouse, async () => {
    const pending = await readUnfinishedMembers(redis, epoch);
    return new Set(pending.map(({ requestId }) => requestId));
  });
}
