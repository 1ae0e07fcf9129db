// What the processes of the peers share with each other and with the bench.

import { randomUUID } from 'node:crypto';
import { createClient } from '@clickhouse/client';

export const peerQueue = 'events';
export const peerDatabase = 'bench_peers';
export const peerTable = 'events';

/** The table that a team would write first. */
export const peerTableStatement = `CREATE TABLE IF NOT EXISTS ${peerDatabase}.${peerTable} (
  app_id String, event_id UUID, event String, identity String, time DateTime64(3, 'UTC'),
  properties Map(String, String)
) ENGINE = MergeTree ORDER BY (app_id, event, time)`;

type PeerEvent = {
  readonly event: string;
  readonly identity: string;
  readonly timestamp?: string;
  readonly properties?: Readonly<Record<string, string | number>>;
};
export type PeerBody = { readonly app_id: string } & (PeerEvent | { readonly events: readonly PeerEvent[] });

/** The rows of a request. */
export function rowsOf(body: PeerBody): object[] {
  return ('events' in body ? body.events : [body]).map(({ event, identity, timestamp, properties }) => ({
    app_id: body.app_id,
    event_id: randomUUID(),
    event,
    identity,
    time: timestamp ?? new Date().toISOString(),
    properties: properties ?? {},
  }));
}

/** Returns a function that inserts rows; up to 256 inserts may be under way. */
export function connectPeerTable() {
  const clickhouse = createClient({
    url: process.env.CLICKHOUSE_URL ?? '',
    database: peerDatabase,
    max_open_connections: 256,
    clickhouse_settings: { date_time_input_format: 'best_effort' },
  });
  return (values: readonly object[]) =>
    clickhouse.insert({ table: peerTable, values, format: 'JSONEachRow' });
}
