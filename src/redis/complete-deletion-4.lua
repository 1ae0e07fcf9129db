-- Marks a deletion request complete: its document with the evidence, its targets gone. One step; may be called again,
-- and never takes a completed request back. ClickHouse has the document before: a Redis that is emptied right after
-- must come back knowing what callers were told.
--
-- KEYS  1  deletion requests (hash)   2  pending requests (sorted set)   3  targets of the request
--       4  present while the append-only file has to be written anew
-- ARGV  1  request id   2  its document   3  its member in the pending requests
-- Returns 1 when this call completed it, else 0.

if redis.call('ZREM', KEYS[2], ARGV[3]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('DEL', KEYS[3])
redis.call('SET', KEYS[4], '1')
return 1
