-- Events without marker rows. A filter on app_id, event and time reaches the primary key through it. `person` lets users be
-- counted by one column, of which none is null.
CREATE VIEW IF NOT EXISTS events {{on_cluster}}
(
  app_id String COMMENT 'Environment',
  event_id UUID COMMENT 'The same for each repeat of an event. With an idempotency key it is a hash of app_id and key',
  event String COMMENT 'Name of the event',
  user_id Nullable(UInt64) COMMENT 'The anonymous user; NULL if the event came with an identity',
  identity String COMMENT 'The identified user; empty if the event came with a user_id',
  session_id String COMMENT 'Session of the user; empty if the event came without one',
  time DateTime64(3, 'UTC') COMMENT 'When it happened: the field timestamp, or else the time of acceptance',
  properties Map(String, String) COMMENT 'Property values as text',
  row_number UInt32 COMMENT 'The third of segment, commit_number, row_number: the order of acceptance',
  segment UInt64 COMMENT 'The first of segment, commit_number, row_number: the order of acceptance',
  commit_number UInt32 COMMENT 'The second of segment, commit_number, row_number: the order of acceptance',
  received_at DateTime64(3, 'UTC') COMMENT 'Time of acceptance',
  person String COMMENT 'Whom the event names: the identity, or else the user_id as text. user_events knows the user of an identified user_id'
)
COMMENT 'One row per event' AS
SELECT
  app_id, event_id, event, user_id, identity, session_id, time, properties, row_number, segment, commit_number, received_at,
  if(identity = '', ifNull(toString(user_id), ''), identity) AS person
FROM stored_events WHERE app_id != ''
