-- Ends a waiting or live pairing of an environment and removes everything of it. May be called again.
--
-- KEYS  1  the pairing (hash)   2  all waiting pairings (sorted set)
--       Its code and its entries in other sets have keys with the same prefix as the pairing.
-- ARGV  1  id of the pairing   2  app_id
-- Returns 1 when there was one, else 0. Cost in commands: 6.

local prefix = string.match(KEYS[1], '^{%w+}:')
local fields = redis.call('HMGET', KEYS[1], 'app_id', 'code', 'address')
local app_id, code, address = fields[1], fields[2], fields[3]
if app_id ~= ARGV[2] then return 0 end

redis.call('DEL', KEYS[1], prefix .. 'code:' .. code)
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', prefix .. 'waiting_of_app:' .. app_id, ARGV[1])
redis.call('ZREM', prefix .. 'waiting_of_address:' .. address, ARGV[1])
return 1
