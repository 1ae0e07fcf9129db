-- The second copy of the callers' references of deletion requests, whose first is in Redis: a digest of account and
-- reference, and a keyed hash of the list of users that came with it. They end by themselves.
CREATE TABLE IF NOT EXISTS deletion_references {{on_cluster}}
(
  reference_digest String,
  request_id String,
  hash String,
  expires_at DateTime64(3, 'UTC')
)
ENGINE = {{engine ReplacingMergeTree(expires_at)}}
ORDER BY reference_digest
TTL toDateTime(expires_at)
SETTINGS
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  merge_with_ttl_timeout = 3600
