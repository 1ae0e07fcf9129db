-- Seals all open segments of a shard and tells the highest number that was given: every record acknowledged
-- before lies in a segment up to it, every later one in a segment above it.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment   2… names of the tables
-- Returns the highest number as text, or nil when this Redis is not that deployment's.

local state_key = KEYS[1]

local state = redis.call('HMGET', state_key, 'epoch', 'last_number')
if state[1] ~= ARGV[1] then return nil end
local changes = {}
for i = 2, #ARGV do
  changes[#changes + 1] = 'open.' .. ARGV[i]
  changes[#changes + 1] = ''
end
redis.call('HSET', state_key, unpack(changes))
return state[2] or '0'
