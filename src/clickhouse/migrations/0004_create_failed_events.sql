-- Rows that ClickHouse refused for their data, as they were, with the error, until an administrator retries
-- or deletes them. Few: everything is checked before it is accepted.
CREATE TABLE IF NOT EXISTS failed_events {{on_cluster}}
(
  table_name String,
  segment UInt64,
  line UInt32,
  app_id String,
  user_id Nullable(UInt64),
  identity String,
  row String,
  error_code Int32,
  error String,
  failed_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{engine MergeTree}}
ORDER BY (app_id, segment, line)
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
