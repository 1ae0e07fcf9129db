-- Ends an export. May be called again.
--
-- KEYS  1  exports (sorted set by the time of their end)   2  the export's request   3  weights of exports (hash)
--       4  exports by account (sorted set)
-- ARGV  1  its member in the exports
-- Returns 1 when this call ended it, else 0.

redis.call('DEL', KEYS[2])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('ZREM', KEYS[4], ARGV[1])
local weight, account = tonumber(redis.call('HGET', KEYS[3], ARGV[1]) or '0'), string.match(ARGV[1], '^%S+')
redis.call('HDEL', KEYS[3], ARGV[1])
if redis.call('HINCRBY', KEYS[3], account, 0 - weight) == 0 then redis.call('HDEL', KEYS[3], account) end
redis.call('HINCRBY', KEYS[3], '', 0 - weight)
return 1
