-- The markers of before, whose segment is how far the index reached. In the background; it writes the parts of the index that have
-- one anew, once.
ALTER TABLE stored_keys {{on_cluster}} DELETE WHERE hash = 0 AND segment < 9223372036854775808
