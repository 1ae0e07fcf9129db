-- An administrator has entered a code: from now on the pairing lives as long as a page renews it. Several administrators
-- may enter the same code. One step, so that the pairing cannot end in between.
--
-- KEYS  1  the code   2  all waiting pairings (sorted set)
--       The pairing's keys have the same prefix as the code's.
-- ARGV  1  ms that it lives without being renewed   2  ms that it lives at most
-- Returns the id of the pairing, or nil if no pairing has this code. Cost in commands: 8.

local prefix = string.match(KEYS[1], '^{%w+}:')
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local id = redis.call('GET', KEYS[1])
if not id then return nil end
local pairing = prefix .. 'pairing:' .. id
local fields = redis.call('HMGET', pairing, 'app_id', 'address', 'state', 'ends_ms')
local app_id, address, state, ends_ms = fields[1], fields[2], fields[3], tonumber(fields[4])
if not app_id then return nil end

if state == 'waiting' then
  ends_ms = now_ms + tonumber(ARGV[2])
  redis.call('HSET', pairing, 'state', 'live', 'ends_ms', ends_ms)
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZREM', prefix .. 'waiting_of_app:' .. app_id, id)
  redis.call('ZREM', prefix .. 'waiting_of_address:' .. address, id)
end
local life_ms = math.max(1, math.min(tonumber(ARGV[1]), ends_ms - now_ms))
redis.call('PEXPIRE', pairing, life_ms)
redis.call('PEXPIRE', KEYS[1], life_ms)
return id
