-- The second copy of accounts, environments, key hashes and the deployment's own record, whose first is in
-- Redis. The row with the highest version of a document stands; an empty document is a removed one.
CREATE TABLE IF NOT EXISTS registry {{on_cluster}}
(
  document_key String,
  document String,
  version UInt64,
  written_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{engine ReplacingMergeTree(version)}}
ORDER BY document_key
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_compressed_bytes_to_fsync_after_merge = 1
