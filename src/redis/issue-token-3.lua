-- Stores a token's hash with what the token stands for, unless the key already has the maximum of live tokens. So
-- minting cannot fill Redis, and no issued token ends before its time.
--
-- KEYS  1  the token   2  live tokens issued for the same API key (sorted set, by the ms since 1970 when they end)
-- ARGV  1  what it stands for   2  lifetime in ms   3  live tokens at most
-- Returns 0 if it is issued, else the milliseconds until one of the live tokens ends.
-- Cost in commands: 6.

local token_key, live_key = KEYS[1], KEYS[2]
local record, lifetime_ms, live_max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', live_key, '-inf', now_ms)
if redis.call('ZCARD', live_key) >= live_max then
  return tonumber(redis.call('ZRANGE', live_key, 0, 0, 'WITHSCORES')[2]) - now_ms
end
local ends_ms = now_ms + lifetime_ms
redis.call('SET', token_key, record, 'PXAT', ends_ms)
redis.call('ZADD', live_key, ends_ms, token_key)
redis.call('PEXPIREAT', live_key, ends_ms)
return 0
