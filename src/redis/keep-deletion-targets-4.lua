-- Notes that ClickHouse has the targets of a pending deletion request.
--
-- KEYS  1  deletion requests (hash)   2  pending requests (sorted set)   3  requests to mirror (set)
--       4  requests whose targets ClickHouse does not have yet (set)
-- ARGV  1  request id   2  its document   3  its member in the pending requests
-- Returns 1 when written, else 0.

redis.call('SREM', KEYS[4], ARGV[1])
if not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[3], ARGV[1])
return 1
