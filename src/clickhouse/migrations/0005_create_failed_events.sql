-- Rows that ClickHouse refused for their data, as they were, with the error, until an administrator retries
-- or deletes them. Few: everything is checked before it is accepted. A row that names nobody is kept without its text, which no
-- deletion would find: its length, its SHA-256 and its event_id are all that stays; they are empty for rows that are kept with
-- their text. Limits and settings as in stored_events.
CREATE TABLE IF NOT EXISTS failed_events {{on_cluster}}
(
  table_name String COMMENT 'Kind of the record: events, user_properties or user_identities; empty in markers of the service',
  segment UInt64 COMMENT 'The segment with which the row was to be stored',
  line UInt32 COMMENT 'The line of the row in its segment',
  app_id String COMMENT 'Environment',
  user_id Nullable(UInt64) COMMENT 'The anonymous user; NULL if the record came with an identity',
  identity String COMMENT 'The identified user; empty if the record came with a user_id',
  row String COMMENT 'The refused row as JSON; empty if it names no user',
  error_code Int32 COMMENT 'ClickHouse''s code of the error',
  error String COMMENT 'Why ClickHouse refused the row',
  failed_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When it was refused',
  text_bytes UInt32 COMMENT 'Length of the row''s text in bytes',
  text_hash String COMMENT 'Hash of the row''s text',
  event_id String COMMENT 'As in events',
  CONSTRAINT shard_limits CHECK
    segment >= toUInt64OrZero(extract(getSetting('log_comment'), '^store \\w+ ([0-9]+)$')) AND segment % 64 NOT IN (
      SELECT shard FROM shard_limits FINAL WHERE of_restore IN ('') AND multiIf(
        kind = 'refused', NOT startsWith(getSetting('log_comment'), 'store asked ')
          AND value >= toUInt64OrZero(extract(getSetting('log_comment'), '^store \\w+ ([0-9]+)$')),
        door = 'open', startsWith(getSetting('log_comment'), 'store asked move '),
        door != getSetting('log_comment')))
)
ENGINE = {{engine MergeTree}}
ORDER BY (app_id, segment, line)
SETTINGS
  non_replicated_deduplication_window = 100000,
  replicated_deduplication_window = 100000,
  replicated_deduplication_window_seconds = 604800,
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  old_parts_lifetime = 10,
  cleanup_delay_period = 1,
  cleanup_delay_period_random_add = 0,
  max_cleanup_delay_period = 1
COMMENT 'Rows that ClickHouse refused for their data. An empty table_name is a marker of the service'
