-- Finds the rows of a few users without reading everybody's: a Bloom filter of each granule's identities and user_ids. 1.7
-- bytes and 0.1 to 0.2 µs of CPU an event. Parts that are there get it in the background, for 0.1 µs of CPU an event; until
-- then they are read as before.
ALTER TABLE stored_events {{on_cluster}}
  ADD INDEX IF NOT EXISTS by_identity identity TYPE bloom_filter(0.001),
  ADD INDEX IF NOT EXISTS by_user_id user_id TYPE bloom_filter(0.001),
  MATERIALIZE INDEX by_identity,
  MATERIALIZE INDEX by_user_id
