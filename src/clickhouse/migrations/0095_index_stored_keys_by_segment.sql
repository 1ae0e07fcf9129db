-- The keys that were added lately, without reading the parts that have none of them: the lowest and the highest segment of a
-- part. Markers count as segment 0. Workers read the keys since their last look for their filters every five minutes.
ALTER TABLE stored_keys {{on_cluster}}
  ADD INDEX IF NOT EXISTS by_segment if(hash = 0, hash, segment) TYPE minmax GRANULARITY 1000000,
  MATERIALIZE INDEX by_segment
