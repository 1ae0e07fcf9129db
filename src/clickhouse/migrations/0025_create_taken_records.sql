-- Which records deletions and retention have taken: their places in the order of acceptance, nothing of what they said and nobody's name.
-- Written before the rows go. A set: to write a record again changes nothing, so a deletion that is cut off and repeated counts it once,
-- and one that was written and not taken is seen by its row. Of a failed row `row_number` is its line, and `commit_number` 0.
CREATE TABLE IF NOT EXISTS taken_records {{on_cluster}}
(
  segment UInt64 CODEC(Delta, ZSTD),
  commit_number UInt32 CODEC(Delta, ZSTD),
  row_number UInt32 CODEC(Delta, ZSTD),
  app_id String,
  kind String COMMENT 'events, user_properties or user_identities',
  term String COMMENT 'deleted or expired'
)
ENGINE = {{engine ReplacingMergeTree}}
PARTITION BY toYYYYMM(fromUnixTimestamp64Micro(toInt64(segment), 'UTC'))
ORDER BY (segment, commit_number, row_number)
SETTINGS
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1
COMMENT 'Records that deletions and retention have taken'
