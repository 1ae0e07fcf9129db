// What the processes of the peers share with each other and with the bench.

import { randomUUID } from 'node:crypto';

export const peerQueue = 'events';
export const peerDatabase = 'bench_peers';
export const peerTable = 'events';

/** The table that a team would write first. */
export const peerTableStatement = `CREATE TABLE ${peerDatabase}.${peerTable} (
  app_id String, event_id UUID, event String, identity String, time DateTime64(3, 'UTC'),
  properties Map(String, String)
) ENGINE = MergeTree ORDER BY (app_id, event, time)`;

export type PeerEvent = {
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
