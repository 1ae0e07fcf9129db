-- What this server has seen of the deployment: the highest number of the witness in Redis's registry and in each shard, and
-- how far a shard was stored then. The part `copies` was written while all changes had their second copy. Whoever knows a lower number
-- is older than this server (registry/witness.ts). No backup has it: a restore sets rows back on purpose.
CREATE TABLE IF NOT EXISTS witness {{on_cluster}}
(
  part String,
  number UInt64,
  stored_to UInt64,
  stored_records UInt64,
  written_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{engine ReplacingMergeTree(number)}}
ORDER BY part
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_compressed_bytes_to_fsync_after_merge = 1
