-- Rest and segment of a key in one column, which is what a look-up reads: each column is one more place on disk for each key.
-- 6 bytes of the rest, which has no more, and the segment with its highest byte first, so that the lowest owner is the first
-- segment. 14 bytes a key. Parts that are there have it when they are merged; until then ClickHouse makes it as it reads.
ALTER TABLE stored_keys {{on_cluster}} ADD COLUMN IF NOT EXISTS owner FixedString(14)
  MATERIALIZED toFixedString(
    substring(reinterpret(rest, 'FixedString(8)'), 1, 6) || reverse(reinterpret(segment, 'FixedString(8)')), 14
  ) CODEC(NONE)
