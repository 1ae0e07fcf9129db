-- Reads how much a shard holds that ClickHouse does not have yet, how long it remembers keys, and whether its ticks run.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)
--       3  minutes of the clock of claims (sorted set, scored by the last segment number when the clock reached the minute)
--       4  present while the shard's ticks run
-- Returns the number of segments, their rows and bytes, the age of the oldest in ms, 1 if ticks run, else 0, and the minutes that claims
-- are kept, if that is known. The age is by Redis's clock, or by the clock of claims, which counts in minutes: the higher value counts. So it
-- also rises after Redis's clock was set back.

local state = redis.call('HMGET', KEYS[1], 'rows', 'bytes', 'claim_window_minutes', 'claim_clock_us')
local oldest_ms, oldest = 0, redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
if oldest then
  local time = redis.call('TIME')
  oldest_ms = math.max(0, tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000 - tonumber(oldest) / 1000)
  local minute = redis.call('ZREVRANGEBYSCORE', KEYS[3], '(' .. oldest, '-inf', 'LIMIT', 0, 1)[1]
  if minute then oldest_ms = math.max(oldest_ms, tonumber(state[4]) / 1000 - (tonumber(minute) + 1) * 60000) end
end
return { redis.call('ZCARD', KEYS[2]), tonumber(state[1] or '0'), tonumber(state[2] or '0'), oldest_ms,
  redis.call('EXISTS', KEYS[4]), tonumber(state[3]) }
