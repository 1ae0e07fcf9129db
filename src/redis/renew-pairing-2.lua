-- Keeps a live pairing and its code for some more time, at most until its end.
--
-- KEYS  1  the pairing (hash)   2  all live pairings (sorted set by end, ms)
--       The key of its code has the same prefix as the pairing's.
-- ARGV  1  id of the pairing   2  ms that it lives without being renewed
-- Returns the ms that it lives at most; 0 when it has ended. Cost in commands: 6.

local prefix = string.match(KEYS[1], '^{%w+}:')
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local fields = redis.call('HMGET', KEYS[1], 'code', 'ends_ms')
local code, ends_ms = fields[1], tonumber(fields[2])
if not code or not ends_ms or ends_ms <= now_ms then return 0 end
local life_ms = math.min(tonumber(ARGV[2]), ends_ms - now_ms)
redis.call('PEXPIRE', KEYS[1], life_ms)
redis.call('PEXPIRE', prefix .. 'code:' .. code, life_ms)
redis.call('ZADD', KEYS[2], now_ms + life_ms, ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return ends_ms - now_ms
