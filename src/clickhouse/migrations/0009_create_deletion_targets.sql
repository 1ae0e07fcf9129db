-- The targets of deletion requests that are not complete: the second copy of what Redis holds, and what the
-- users to delete are resolved from. A target has an identity or a user_id. Emptied when its request is
-- complete, so parts that were replaced leave the disk within seconds. For the evidence of each target: the
-- identity that a resolved user_id was merged into (empty for none), and where in the submitted list a named user
-- stood first.
CREATE TABLE IF NOT EXISTS deletion_targets {{on_cluster}}
(
  request_id String,
  app_id String,
  identity String,
  user_id Nullable(UInt64),
  merged_identity String,
  place UInt32
)
ENGINE = {{engine MergeTree}}
ORDER BY (request_id, app_id)
SETTINGS
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  old_parts_lifetime = 10,
  cleanup_delay_period = 1,
  cleanup_delay_period_random_add = 0,
  max_cleanup_delay_period = 1
