// The room on ClickHouse's disks, as metrics.

import { clickhouseDisk } from '../metrics.js';
import type { ClickHouseClient } from './client.js';

/** ClickHouse may be away: then its gauges have no value, and whoever asks for the metrics waits no longer than this. */
const waitMsMax = 1_000;

/** Sets the gauges to the disk with the least room. Never rejects. */
export async function observeDisk(clickhouse: ClickHouseClient): Promise<void> {
  const [disk] = await readDisks(clickhouse).catch((): Disk[] => []);
  clickhouseDisk.freeBytes.set(disk === undefined ? Number.NaN : Number(disk.free));
  clickhouseDisk.bytes.set(disk === undefined ? Number.NaN : Number(disk.total));
}

type Disk = { readonly free: string; readonly total: string };

async function readDisks(clickhouse: ClickHouseClient): Promise<Disk[]> {
  const result = await clickhouse.query({
    query: `SELECT toString(unreserved_space) AS free, toString(total_space) AS total FROM system.disks
      ORDER BY unreserved_space LIMIT 1`,
    format: 'JSONEachRow',
    abort_signal: AbortSignal.timeout(waitMsMax),
  });
  return result.json<Disk>();
}
