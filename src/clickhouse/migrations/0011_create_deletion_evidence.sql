-- What was counted for each user that a deletion request named: the place in the submitted list, a keyed hash of the name,
-- the rows that were found, and how many similar names there were. It ends by itself.
CREATE TABLE IF NOT EXISTS deletion_evidence {{on_cluster}}
(
  request_id String,
  place UInt32,
  hash String,
  rows UInt64,
  similar UInt32,
  expires_at DateTime64(3, 'UTC')
)
ENGINE = {{engine ReplacingMergeTree}}
ORDER BY (request_id, place)
TTL toDateTime(expires_at)
SETTINGS
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  merge_with_ttl_timeout = 3600
