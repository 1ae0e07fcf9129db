-- Calls that gave an anonymous user an identity, one row each, marker rows included. The first identity of a
-- user_id, by (segment, commit_number, row_number), stands; the views apply that.
CREATE TABLE IF NOT EXISTS stored_user_identities {{on_cluster}}
(
  app_id String,
  user_id UInt64,
  identity String,
  row_number UInt32,
  segment UInt64,
  commit_number UInt32,
  received_at DateTime64(3, 'UTC')
)
ENGINE = {{engine MergeTree}}
PARTITION BY toYYYYMM(fromUnixTimestamp64Micro(toInt64(segment), 'UTC'))
ORDER BY (app_id, user_id)
SETTINGS
  non_replicated_deduplication_window = 100000,
  replicated_deduplication_window = 100000,
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  old_parts_lifetime = 10,
  cleanup_delay_period = 1,
  cleanup_delay_period_random_add = 0,
  max_cleanup_delay_period = 1
