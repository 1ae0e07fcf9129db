-- How many records of an environment an API process accepted, knew already, refused for a limit and rejected in a minute, for
-- the console's charts. A process (`instance`: one run of it) writes a minute once, when it is over; a repeat of that is the
-- same row. No user is in it. Rows end by themselves.
CREATE TABLE IF NOT EXISTS minute_counts {{on_cluster}}
(
  app_id String COMMENT 'Environment',
  minute DateTime('UTC') COMMENT 'The minute that was counted',
  instance String COMMENT 'The API process that counted',
  accepted UInt64 COMMENT 'Records that were accepted',
  repeated UInt64 COMMENT 'Records that were recognised as repeats',
  limited UInt64 COMMENT 'Records that a limit refused',
  rejected UInt64 COMMENT 'Records that were rejected'
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
COMMENT 'Records by environment and minute, kept for 15 days; read it with FINAL'
