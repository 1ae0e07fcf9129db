#!lua flags=allow-oom
-- Counts in the ledger of a shard the repeats that a worker takes out of a segment. Allowed when Redis is full, since the segment that is
-- stored next makes room.
--
-- KEYS  1  outstanding segments (sorted set)   2  minutes of the ledger (set)   3  the minute's entries (hash)
-- ARGV  1  member of the segment               2  the minute, since 1970        3…  field, value …
-- Returns 1 when counted; 0 when the segment is not outstanding: another worker has stored it, or Redis was emptied since.

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
redis.call('SADD', KEYS[2], ARGV[2])
return 1
