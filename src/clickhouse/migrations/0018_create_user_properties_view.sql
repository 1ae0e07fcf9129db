-- Calls that set user properties, without marker rows.
CREATE VIEW IF NOT EXISTS user_properties {{on_cluster}}
(
  app_id String COMMENT 'Environment',
  user_id Nullable(UInt64) COMMENT 'The anonymous user; NULL if the call came with an identity',
  identity String COMMENT 'The identified user; empty if the call came with a user_id',
  time DateTime64(3, 'UTC') COMMENT 'When the values were true: the timestamp of a message of Segment or of an import, else the time of acceptance',
  properties Map(String, String) COMMENT 'The properties that this call set, as text',
  row_number UInt32 COMMENT 'The third of segment, commit_number, row_number: the order of acceptance',
  segment UInt64 COMMENT 'The first of segment, commit_number, row_number: the order of acceptance',
  commit_number UInt32 COMMENT 'The second of segment, commit_number, row_number: the order of acceptance',
  received_at DateTime64(3, 'UTC') COMMENT 'Time of acceptance'
)
COMMENT 'One row per call that set properties of a user; users has the latest value of each' AS
SELECT app_id, user_id, identity, time, properties, row_number, segment, commit_number, received_at
FROM stored_user_properties WHERE app_id != ''
