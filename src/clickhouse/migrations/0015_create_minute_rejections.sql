-- Why records of an environment were rejected in a minute, for the console's chart: the error's code and the field, which is one
-- that the service knows; what a sender chose is an asterisk. Written with minute_counts, and like it: a repeat is the same row,
-- no user is in it, and rows end by themselves.
CREATE TABLE IF NOT EXISTS minute_rejections {{on_cluster}}
(
  app_id String COMMENT 'Environment',
  minute DateTime('UTC') COMMENT 'The minute that was counted',
  instance String COMMENT 'The API process that counted',
  code String COMMENT 'Why the records were rejected',
  field String COMMENT 'The field at fault; * for a name that the sender chose',
  rejected UInt64 COMMENT 'How many records'
)
ENGINE = {{engine ReplacingMergeTree}}
PARTITION BY toMonday(minute)
ORDER BY (app_id, minute, instance, code, field)
TTL minute + INTERVAL 15 DAY
SETTINGS
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  ttl_only_drop_parts = 1
COMMENT 'Rejected records by environment, minute, code and field, kept for 15 days; read it with FINAL'
