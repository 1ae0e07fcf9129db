-- Begins a pairing: a device shows a code that nobody has entered yet. One step, so that no code has two pairings, and
-- requests that come at the same time cannot exceed a bound.
--
-- KEYS  1  the pairing (hash)   2  its code   3  all waiting pairings (sorted set by end, ms)
--       4  those of the environment (the same)   5  those of the address (the same)
-- ARGV  1  id of the pairing   2  app_id   3  code   4  digest of the address   5  lifetime in ms
--       6  waiting pairings at most   7  of the environment   8  of the address
-- Returns 1, or, with nothing written: 0 the code is taken, -1 too many of the environment, -2 too many of
-- the address, -3 too many. Cost in commands: 15.

local id, app_id, code, address, life_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
for i, full in ipairs({ -3, -1, -2 }) do
  redis.call('ZREMRANGEBYSCORE', KEYS[i + 2], '-inf', now_ms)
  if redis.call('ZCARD', KEYS[i + 2]) >= tonumber(ARGV[i + 5]) then return full end
end

redis.call('HSET', KEYS[1], 'app_id', app_id, 'code', code, 'address', address, 'state', 'waiting')
redis.call('PEXPIRE', KEYS[1], life_ms)
redis.call('SET', KEYS[2], id, 'PX', life_ms)
for i = 3, 5 do
  redis.call('ZADD', KEYS[i], now_ms + life_ms, id)
  redis.call('PEXPIRE', KEYS[i], life_ms)
end
return 1
