-- Stores a token's hash with what the token stands for, unless the key or its account already has the maximum of tokens. So minting cannot
-- fill Redis, and no issued token ends before its time. The tokens of the account include those of keys that were revoked or replaced: they
-- are no longer valid, but take memory until they expire.
--
-- KEYS  1  the token   2  live tokens issued for the same API key (sorted set, by the ms since 1970 when they end)
--       3  tokens issued for the account (hash, how many in each minute since 1970)
-- ARGV  1  what it stands for   2  lifetime in ms   3  live tokens of the key at most   4  of the account at most
-- Returns 0 if it is issued, else the milliseconds until one of the live tokens ends.
-- Cost in commands: 9.

local token_key, live_key, issued_key = KEYS[1], KEYS[2], KEYS[3]
local record, lifetime_ms, live_max, account_max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', live_key, '-inf', now_ms)
if redis.call('ZCARD', live_key) >= live_max then
  return tonumber(redis.call('ZRANGE', live_key, 0, 0, 'WITHSCORES')[2]) - now_ms
end

-- When the tokens of a minute have all ended.
local function ends_of(minute) return (minute + 1) * 60000 + lifetime_ms end

local issued, first_ends_ms = 0, math.huge
local counts = redis.call('HGETALL', issued_key)
for i = 1, #counts, 2 do
  local minute_ends_ms = ends_of(tonumber(counts[i]))
  if minute_ends_ms <= now_ms then
    redis.call('HDEL', issued_key, counts[i])
  else
    issued = issued + tonumber(counts[i + 1])
    first_ends_ms = math.min(first_ends_ms, minute_ends_ms)
  end
end
if issued >= account_max then return first_ends_ms - now_ms end

local minute = math.floor(now_ms / 60000)
redis.call('HINCRBY', issued_key, string.format('%d', minute), 1)
redis.call('PEXPIREAT', issued_key, ends_of(minute))
local ends_ms = now_ms + lifetime_ms
redis.call('SET', token_key, record, 'PXAT', ends_ms)
redis.call('ZADD', live_key, ends_ms, token_key)
redis.call('PEXPIREAT', live_key, ends_ms)
return 0
