-- Who did what to which account, environment, key or deletion request, when and from where. Two lines an action: one before
-- it (stage 0) and one after it (stage 1) with the outcome. A line that is copied twice is one. Nothing changes or removes
-- lines, and the service's user has no right to.
CREATE TABLE IF NOT EXISTS audit_log {{on_cluster}}
(
  at DateTime64(3, 'UTC'),
  id String,
  stage UInt8,
  actor String,
  actor_name String,
  address String,
  action String,
  account_id String,
  app_id String,
  key_id String,
  deletion_request_id String,
  details String,
  outcome String
)
ENGINE = {{engine ReplacingMergeTree}}
ORDER BY (at, id, stage)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_compressed_bytes_to_fsync_after_merge = 1
