-- The index of idempotency keys: which segment stored the id of a key first. A row of a key is its id's first 14 bytes,
-- in two numbers, and the segment. No user is in it, so deletions leave it alone.
-- A row with the hash 0 is a marker, one for each shard `rest` and generation of the index: its segment is the generation, from 2^63 on,
-- which no number of a segment reaches. All keys of the shard that are stored in segments up to the one in `owner` are in the index. A
-- later marker takes the place of an earlier one when parts are merged.
-- Keys are looked up by the thousand, at random places: small granules and small blocks, and numbers that cannot be
-- compressed are not. 23 bytes a key. Inserts and merges are synced, since Redis forgets the keys right after.
-- `owner` has rest and segment of a key in one column, which is what a look-up reads: each column is one more place on disk for each
-- key. 6 bytes of the rest, which has no more, and the segment with its highest byte first, so that the lowest owner is the first
-- segment.
-- by_segment: the keys that were added lately, without reading the parts that have none of them. Markers count as segment 0. Workers
-- read the keys since their last look for their filters every five minutes.
-- shard_limits: as in stored_events, but only workers and copies are refused: a restore writes markers of all shards to every server.
CREATE TABLE IF NOT EXISTS stored_keys {{on_cluster}}
(
  hash UInt64 CODEC(NONE),
  rest UInt64,
  segment UInt64,
  owner FixedString(14) MATERIALIZED toFixedString(
    substring(reinterpret(rest, 'FixedString(8)'), 1, 6) || reverse(reinterpret(segment, 'FixedString(8)')), 14
  ) CODEC(NONE),
  INDEX by_segment if(hash = 0, hash, segment) TYPE minmax GRANULARITY 1000000,
  CONSTRAINT shard_limits CHECK
    NOT match(getSetting('log_comment'), '^(index [0-9]+$|store asked move )') OR if(hash = 0, rest, segment % 64) NOT IN (
      SELECT shard FROM shard_limits FINAL WHERE of_restore IN ('') AND kind = 'door' AND if(
        door = 'open', startsWith(getSetting('log_comment'), 'store asked move '),
        door != getSetting('log_comment')))
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
