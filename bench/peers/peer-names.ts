// Names that the peers' processes and the bench share.

export const peerQueue = 'events';
export const peerDatabase = 'bench_peers';
export const peerTable = 'events';

/** As a team would write it; properties as JSON text. */
export const peerTableStatement = `CREATE TABLE ${peerDatabase}.${peerTable} (
  app_id String, event_id UUID, event String, identity String, time DateTime64(3, 'UTC'),
  properties Map(String, String)
) ENGINE = MergeTree ORDER BY (app_id, event, time)`;
