-- Takes expired claims out of some of a shard's buckets, the next ones at each call, so that those go that no
-- commit writes any more. By the clock of the last commit: a clock that was wrong for a moment drops nothing.
--
-- KEYS  1  state of the shard (hash): clock_us, claim_window_minutes, claim_cursor   2  claims (hash of buckets)
-- ARGV  1  buckets to look at, about

local state_key, claims_key, count = KEYS[1], KEYS[2], ARGV[1]

local state = redis.call('HMGET', state_key, 'clock_us', 'claim_window_minutes', 'claim_cursor')
if not state[1] then return end
local now_minute = math.floor(tonumber(state[1]) / 60000000) % 65536
local window_minutes = tonumber(state[2] or '1440')

local scanned = redis.call('HSCAN', claims_key, state[3] or '0', 'COUNT', count)
local next_cursor, buckets = scanned[1], scanned[2]
for i = 1, #buckets, 2 do
  local field, entries, first = buckets[i], buckets[i + 1], 1
  while first < #entries and (now_minute - struct.unpack('>I2', entries, first)) % 65536 > window_minutes do
    first = first + 16
  end
  if first > #entries then
    redis.call('HDEL', claims_key, field)
  elseif first > 1 then
    redis.call('HSET', claims_key, field, string.sub(entries, first))
  end
end
redis.call('HSET', state_key, 'claim_cursor', next_cursor)
