// Whether an environment has events: asked every second while somebody waits for the first one, so only one row is read.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { isoTime } from '../../clickhouse/iso-time.js';
import { storedTable } from '../../clickhouse/tables.js';

/** An event of the environment; undefined as long as none is stored. */
export async function readAnyEvent(client: ClickHouseClient, appId: string) {
  const [found] = await readRows<{ event: string; received_at: string }>(client, {
    query: `SELECT event, ${isoTime('e.received_at')} AS received_at FROM ${storedTable('events')} AS e
      WHERE app_id = {appId:String} LIMIT 1`,
    query_params: { appId },
  });
  return found;
}
