#!lua flags=allow-oom
-- Counts in the ledger of a shard the repeats that a worker takes out of a segment. Allowed when Redis is full, since the segment that is
-- stored next makes room.
--
-- KEYS  1  minutes of the ledger (set)   2  the minute's entries (hash)
-- ARGV  1  the minute, since 1970        2…  field, value …

redis.call('HSET', KEYS[2], unpack(ARGV, 2))
redis.call('SADD', KEYS[1], ARGV[1])
