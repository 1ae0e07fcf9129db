// The step of a round of deletions that looks whether anything is left.

import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { MutationFailed } from '../../src/clickhouse/mutate.js';
import { serversOf } from '../../src/clickhouse/servers.js';
import { untilNoRetryRuns } from '../../src/privacy/deletion/maintenance-lock.js';
import type { FoundRows } from '../../src/privacy/deletion/request.js';
import { countLeft, readOnDisk } from '../../src/privacy/deletion/round-keys.js';
import { userTables } from '../../src/privacy/deletion/user-tables.js';
import { type Resolved, type RoundOptions, update } from './round.js';

/**
 * Looks into every place after all mutations, since a crash may lose a mutation that was reported as done. Settles with the requests of
 * which masked rows are on a disk. Rejects with MutationFailed when queries still show something; the requests then say what.
 */
export async function verify(options: RoundOptions, round: Resolved): Promise<ReadonlySet<number>> {
  const left: FoundRows[] = [];
  const onDisk = new Set<number>();
  for (const { client } of round.parts.all) await untilNoRetryRuns(client);
  for (const place of userTables) {
    for (const { client, tables } of round.parts.all) {
      const found = await readOnDisk(client, tables, place);
      for (const number of found.keys()) onDisk.add(number);
      if (![...found.values()].some(({ isShown }) => isShown)) continue;
      for (const [app_id, rows] of await countLeft(client, tables, place))
        left.push({ app_id, table: place, rows });
    }
  }
  if (left.length === 0) {
    await compareAgain(options.clickhouse, round);
    return onDisk;
  }
  // From then on they are not hidden.
  await update(options, round, () => ({ left, hidden_at: undefined, state: 'mutation_failed' }));
  const places = new Set(left.map(({ table }) => table));
  throw new MutationFailed(`rows are left in ${[...places].join(', ')} after the mutations`);
}

/** Rejects if a URL now leads to another server, which would hold nothing of the round's users. */
async function compareAgain(clickhouse: ClickHouseClient, { parts }: Resolved): Promise<void> {
  const servers = serversOf(clickhouse);
  if (servers.table() === undefined) return;
  for (const { client } of parts.all) await servers.compare(servers.all.indexOf(client));
}
