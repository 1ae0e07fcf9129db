-- The second copy of deletion requests, with their fences and, when complete, the evidence; whose first is
-- in Redis. Holds no identity. The row with the highest version of a request stands.
CREATE TABLE IF NOT EXISTS deletion_requests {{on_cluster}}
(
  request_id String,
  document String,
  version UInt64,
  written_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{engine ReplacingMergeTree(version)}}
ORDER BY request_id
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_compressed_bytes_to_fsync_after_merge = 1
