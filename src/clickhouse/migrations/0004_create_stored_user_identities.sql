-- Calls that gave an anonymous user an identity, one row each, marker rows included; indexes, limits and settings as in stored_events.
-- The first identity of a user_id, by (segment, commit_number, row_number), stands; the views apply that. `event_id` as in
-- stored_user_properties.
CREATE TABLE IF NOT EXISTS stored_user_identities {{on_cluster}}
(
  app_id String,
  event_id UUID,
  user_id UInt64,
  identity String,
  row_number UInt32,
  segment UInt64,
  commit_number UInt32,
  received_at DateTime64(3, 'UTC'),
  INDEX by_identity identity TYPE bloom_filter(0.001),
  INDEX by_user_id user_id TYPE bloom_filter(0.001),
  INDEX by_plain_form
    if(lowerUTF8(trim(BOTH ' \t\n\v\f\r' FROM identity)) = identity, ' ', lowerUTF8(trim(BOTH ' \t\n\v\f\r' FROM identity)))
    TYPE bloom_filter(0.001),
  CONSTRAINT shard_limits CHECK
    segment >= toUInt64OrZero(extract(getSetting('log_comment'), '^store \\w+ ([0-9]+)$')) AND segment % 64 NOT IN (
      SELECT shard FROM shard_limits FINAL WHERE of_restore IN ('') AND multiIf(
        kind = 'refused', NOT startsWith(getSetting('log_comment'), 'store asked ')
          AND value >= toUInt64OrZero(extract(getSetting('log_comment'), '^store \\w+ ([0-9]+)$')),
        door = 'open', startsWith(getSetting('log_comment'), 'store asked move '),
        door != getSetting('log_comment')))
)
ENGINE = {{engine MergeTree}}
PARTITION BY toYYYYMM(fromUnixTimestamp64Micro(toInt64(segment), 'UTC'))
ORDER BY (app_id, user_id)
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
