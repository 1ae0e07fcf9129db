-- Calls that gave an anonymous user an identity, without marker rows.
CREATE VIEW IF NOT EXISTS user_identities {{on_cluster}}
(
  app_id String COMMENT 'Environment',
  user_id UInt64 COMMENT 'The anonymous user',
  identity String COMMENT 'The identity that this call gave the user; of several the first accepted one stands',
  row_number UInt32 COMMENT 'The third of segment, commit_number, row_number: the order of acceptance',
  segment UInt64 COMMENT 'The first of segment, commit_number, row_number: the order of acceptance',
  commit_number UInt32 COMMENT 'The second of segment, commit_number, row_number: the order of acceptance',
  received_at DateTime64(3, 'UTC') COMMENT 'Time of acceptance'
)
COMMENT 'One row per call that identified an anonymous user' AS
SELECT app_id, user_id, identity, row_number, segment, commit_number, received_at
FROM stored_user_identities WHERE app_id != ''
