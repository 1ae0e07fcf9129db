// The step of a round of deletions that checks whether any rows are left.

import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { MutationFailed } from '../../src/clickhouse/mutate.js';
import { serversOf } from '../../src/clickhouse/servers.js';
import { untilNoRetryRuns } from '../../src/privacy/deletion/maintenance-lock.js';
import type { FoundRows } from '../../src/privacy/deletion/request.js';
import { countLeft, readOnDisk } from '../../src/privacy/deletion/round-keys.js';
import { type Resolved, type RoundOptions, requestsOf, update } from './round.js';

/**
 * Reads every table after all mutations, since a crash may lose a mutation that was reported as done. Settles with the requests
 * that have masked rows on a disk. Rejects with MutationFailed if queries still show rows, after writing them into the requests.
 */
export async function verify(options: RoundOptions, round: Resolved): Promise<ReadonlySet<number>> {
  const left: FoundRows[] = [];
  const onDisk = new Set<number>();
  const shown = new Set<number>();
  for (const { client } of round.parts.all) await untilNoRetryRuns(client);
  for (const { client, tables } of round.parts.all) {
    const found = await readOnDisk(client, tables);
    for (const { request } of found) onDisk.add(request);
    const shownHere = found.filter(({ isShown }) => isShown);
    for (const { request } of shownHere) shown.add(request);
    for (const table of new Set(shownHere.map((each) => each.table)))
      for (const [app_id, rows] of await countLeft(client, tables, table)) left.push({ app_id, table, rows });
  }
  if (left.length === 0) {
    await assertSameServers(options.clickhouse, round);
    return onDisk;
  }
  // These requests are no longer hidden; the others stay so.
  const affected = requestsOf(round, (number) => shown.has(number));
  await update(options, affected, () => ({ left, hidden_at: undefined, state: 'mutation_failed' }));
  const names = new Set(left.map(({ table }) => table));
  throw new MutationFailed(`rows are left in ${[...names].join(', ')} after the mutations`);
}

/** Rejects if a URL now leads to another server, which would have no rows of the round's users. */
async function assertSameServers(clickhouse: ClickHouseClient, { parts }: Resolved): Promise<void> {
  const servers = serversOf(clickhouse);
  if (servers.table() === undefined) return;
  for (const { client } of parts.all) await servers.compare(servers.all.indexOf(client));
}
