// What the processes of the peers share with each other and with the bench.

export const peerQueue = 'events';
export const peerDatabase = 'bench_peers';
export const peerTable = 'events';

/** The table that a team would write first. */
export const peerTableStatement = `CREATE TABLE IF NOT EXISTS ${peerDatabase}.${peerTable} (
  app_id String, event_id UUID, event String, identity String, time DateTime64(3, 'UTC'),
  properties Map(String, String)
) ENGINE = MergeTree ORDER BY (app_id, event, time)`;
