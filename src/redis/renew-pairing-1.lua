-- Keeps a live pairing and its code for some more time, at most until its end.
--
-- KEYS  1  the pairing (hash)
--       The key of its code has the same prefix as the pairing's.
-- ARGV  1  ms that it lives without being renewed
-- Returns the ms that it lives at most; 0 when it has ended. Cost in commands: 4.

local prefix = string.match(KEYS[1], '^{%w+}:')
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local fields = redis.call('HMGET', KEYS[1], 'code', 'ends_ms')
local code, ends_ms = fields[1], tonumber(fields[2])
if not code or not ends_ms or ends_ms <= now_ms then return 0 end
local life_ms = math.min(tonumber(ARGV[1]), ends_ms - now_ms)
redis.call('PEXPIRE', KEYS[1], life_ms)
redis.call('PEXPIRE', prefix .. 'code:' .. code, life_ms)
return ends_ms - now_ms
