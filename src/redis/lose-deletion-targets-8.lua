-- Moves a deletion request whose targets are lost from the pending to the lost requests, so that it delays no other. May be
-- called again.
--
-- KEYS  1  deletion requests (hash)   2  pending requests (sorted set)   3  lost requests (sorted set)
--       4  what ClickHouse lacks (sorted set)   5  requests whose targets ClickHouse does not have yet (set)
--       6  the targets as Redis has them   7  weights of pending requests (hash)
--       8  pending requests by account (sorted set)
-- ARGV  1  request id   2  its document   3  its member in the pending requests
--       4  the targets as the caller read them, empty for none: a restore may have brought them back since
-- Returns 1 if this call moved it, else 0.

if (redis.call('GET', KEYS[6]) or '') ~= ARGV[4] then return 0 end
redis.call('SREM', KEYS[5], ARGV[1])
local submitted_ms = redis.call('ZSCORE', KEYS[2], ARGV[3])
if not submitted_ms then return 0 end
redis.call('ZREM', KEYS[2], ARGV[3])
redis.call('ZREM', KEYS[8], ARGV[3])
redis.call('ZADD', KEYS[3], submitted_ms, ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[4], 4, ARGV[1])
-- The targets name users and are no longer needed.
redis.call('DEL', KEYS[6])
local weight, account = tonumber(redis.call('HGET', KEYS[7], ARGV[3]) or '0'), string.match(ARGV[3], '^%S+')
redis.call('HDEL', KEYS[7], ARGV[3])
if redis.call('HINCRBY', KEYS[7], account, 0 - weight) == 0 then redis.call('HDEL', KEYS[7], account) end
redis.call('HINCRBY', KEYS[7], '', 0 - weight)
return 1
