-- Finds the rows of a few users by identity and by user_id, as in stored_events. The table's key finds one of them only.
ALTER TABLE stored_user_identities {{on_cluster}}
  ADD INDEX IF NOT EXISTS by_identity identity TYPE bloom_filter(0.001),
  ADD INDEX IF NOT EXISTS by_user_id user_id TYPE bloom_filter(0.001),
  MATERIALIZE INDEX by_identity,
  MATERIALIZE INDEX by_user_id
