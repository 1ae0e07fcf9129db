// Whether an environment has events. While somebody waits for the first one, this is asked every second, so it reads only one row.

import { isoTime, readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
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
