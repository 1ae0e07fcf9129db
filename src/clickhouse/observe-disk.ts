// Whether ClickHouse's servers answer, and the room on their disks, as metrics.

import { clickhouseDisk, clickhouseUp } from '../metrics.js';
import { readRows } from './answers.js';
import { type ClickHouseClient, endingAfter } from './client.js';
import { serversOf } from './servers.js';

/** If ClickHouse does not answer in this time, its gauges have no value. Requests for the metrics wait no longer. */
const waitMsMax = 1_000;

/** Sets the gauges, from the disk with the least room. Never rejects. */
export async function observeDisk(clickhouse: ClickHouseClient): Promise<void> {
  const { all } = serversOf(clickhouse);
  const disks = await Promise.all(all.map((client) => readDisk(client).catch(() => undefined)));
  for (const [number, disk] of disks.entries())
    clickhouseUp.set({ server: String(number) }, disk === undefined ? 0 : 1);
  const [least] = disks.filter((disk) => disk !== undefined).sort((a, b) => Number(a.free) - Number(b.free));
  clickhouseDisk.freeBytes.set(least === undefined ? Number.NaN : Number(least.free));
  clickhouseDisk.bytes.set(least === undefined ? Number.NaN : Number(least.total));
}

type Disk = { readonly free: string; readonly total: string };

async function readDisk(clickhouse: ClickHouseClient): Promise<Disk | undefined> {
  const [disk] = await readRows<Disk>(clickhouse, {
    query: `SELECT toString(unreserved_space) AS free, toString(total_space) AS total FROM system.disks
      ORDER BY unreserved_space LIMIT 1`,
    ...endingAfter(waitMsMax),
  });
  return disk;
}
