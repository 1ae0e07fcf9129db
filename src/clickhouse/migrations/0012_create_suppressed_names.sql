-- The second copy of the suppressed users: every change of a name and of what it is suppressed for. The latest version of
-- (account_id, name, root) stands. Names are keyed hashes; no user is in it, so deletions leave it alone. A change that is
-- copied twice is one.
CREATE TABLE IF NOT EXISTS suppressed_names {{on_cluster}}
(
  account_id String,
  name String,
  root String,
  version UInt64,
  suppressed UInt8
)
ENGINE = {{engine ReplacingMergeTree}}
ORDER BY (account_id, name, root, version)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_compressed_bytes_to_fsync_after_merge = 1
