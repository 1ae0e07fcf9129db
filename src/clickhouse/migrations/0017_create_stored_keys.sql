-- The index of idempotency keys: which segment stored the id of a key first. A row of a key is its id's first 14 bytes,
-- in two numbers, and the segment; a row with the hash 0 is a marker: all keys of the shard `rest` that are stored in
-- segments up to `segment` are in the index. No user is in it, so deletions leave it alone.
-- Keys are looked up by the thousand, at random places: small granules and small blocks, and numbers that cannot be
-- compressed are not. 23 bytes a key. Inserts and merges are synced, since Redis forgets the keys right after.
CREATE TABLE IF NOT EXISTS stored_keys {{on_cluster}}
(
  hash UInt64 CODEC(NONE),
  rest UInt64,
  segment UInt64
)
ENGINE = {{engine ReplacingMergeTree}}
PRIMARY KEY hash
ORDER BY (hash, rest, segment)
SETTINGS
  index_granularity = 128,
  min_compress_block_size = 2048,
  max_compress_block_size = 4096,
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1
