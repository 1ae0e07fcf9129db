-- Events as their segments brought them, marker rows included. A segment's number is its opening time in
-- microseconds, so the partition depends on nothing else: one segment, one partition, one part.
-- Plain strings and Map(String, String): an insert costs 1.8 µs of CPU a row; with LowCardinality names 2.1,
-- a LowCardinality map 2.7, JSON 3.5 (blocks of 20,000 rows of 206 bytes).
-- The window of tokens holds 100,000 inserts: seven hours at four a second. On replicas tokens are in the keeper, which by default
-- forgets when they are an hour older than the newest. Inserts and merges are synced, since their segment is forgotten right after.
-- Replaced parts leave the disk within seconds, so that deleted data does too.
-- by_identity, by_user_id: find the rows of a few users without reading everybody's, by a Bloom filter of each granule. 1.7 bytes and
-- 0.1 to 0.2 µs of CPU an event.
-- by_segment: what was accepted lately, without reading all that a large part holds. 16 bytes a granule, no CPU worth measuring. The
-- names of the last day's events are counted in 50 ms instead of 350 ms among 100 million.
-- by_plain_form: finds identities that look like a given one, by the plain forms (src/clickhouse/plain-form.ts) that differ from their
-- identity. No bytes where all identities are written in lower case, else up to 1.9 an event, and 0.05 to 0.15 µs of CPU.
-- shard_limits: ClickHouse itself refuses what arrives too late. It reads the limits when an insert's first rows are there, so an
-- insert that it lists in system.processes after a limit was stored heeds that limit. An insert of a segment has the segment's number
-- at the end of its log_comment; one without a number counts as older than any limit. Costs an insert about 3 ms of CPU, however many
-- limits there are.
CREATE TABLE IF NOT EXISTS stored_events {{on_cluster}}
(
  app_id String,
  event_id UUID,
  event String,
  user_id Nullable(UInt64),
  identity String,
  session_id String,
  time DateTime64(3, 'UTC') DEFAULT received_at,
  properties Map(String, String),
  row_number UInt32,
  segment UInt64,
  commit_number UInt32,
  received_at DateTime64(3, 'UTC'),
  INDEX by_identity identity TYPE bloom_filter(0.001),
  INDEX by_user_id user_id TYPE bloom_filter(0.001),
  INDEX by_segment segment TYPE minmax GRANULARITY 1,
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
ORDER BY (app_id, event, time)
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
