// Names that the bench shares with the processes of the peers.

export const peerQueue = 'events';
export const peerDatabase = 'bench_peers';
export const peerTable = 'events';

/** The table that a team would write first. */
export const peerTableStatement = `CREATE TABLE ${peerDatabase}.${peerTable} (
  app_id String, event_id UUID, event String, identity String, time DateTime64(3, 'UTC'),
  properties Map(String, String)
) ENGINE = MergeTree ORDER BY (app_id, event, time)`;
