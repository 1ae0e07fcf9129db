-- How many records of an environment an API process accepted, knew already, refused for a limit and rejected in a minute, for
-- the console's charts. A process (`instance`: one run of it) writes a minute once, when it is over; a repeat of that is the
-- same row. No user is in it. Rows end by themselves.
CREATE TABLE IF NOT EXISTS minute_counts {{on_cluster}}
(
  app_id String,
  minute DateTime('UTC'),
  instance String,
  accepted UInt64,
  repeated UInt64,
  limited UInt64,
  rejected UInt64
)
ENGINE = {{engine ReplacingMergeTree}}
PARTITION BY toMonday(minute)
ORDER BY (app_id, minute, instance)
TTL minute + INTERVAL 15 DAY
SETTINGS
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  ttl_only_drop_parts = 1
