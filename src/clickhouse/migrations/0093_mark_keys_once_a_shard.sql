-- One marker for each shard and generation of the index: the segment of its row is the generation, from 2^63 on, which no number
-- of a segment reaches, and how far the index reaches is in the owner alone. A later one takes the place of an earlier one when
-- parts are merged. Until then each step of the index left a row, a hundred thousand a year, and every look-up read all of them.
INSERT INTO stored_keys (hash, rest, segment, owner)
SELECT 0, rest, 9223372036854775808, max(owner) FROM stored_keys WHERE hash = 0 GROUP BY rest
SETTINGS insert_allow_materialized_columns = 1
