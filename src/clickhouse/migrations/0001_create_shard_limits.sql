-- What the stored tables refuse, by shard: limits that change while the service runs are rows, since a definition that is changed on
-- a full disk may be lost. `refused`: segments up to `value`. `door`: which inserts are taken at all; the row with the highest
-- `value` stands: 'open' takes all but copies from another server, 'closed' takes none, a name takes the copy of this name.
-- `of_restore`: the restore whose tables alone heed the row; empty: all do. The constraints `shard_limits` of the tables read it.
CREATE TABLE IF NOT EXISTS shard_limits {{on_cluster}}
(
  shard UInt16,
  kind Enum8('refused' = 1, 'door' = 2),
  of_restore String,
  value UInt64,
  door String
)
ENGINE = {{engine ReplacingMergeTree(value)}}
ORDER BY (shard, kind, of_restore)
SETTINGS
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1
