-- Seals all open segments of a shard and returns the highest number that was given. Every record acknowledged before is in
-- a segment up to it, every later record in a segment above it.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment
-- Returns the highest number as text, or nil when this Redis is not that deployment's.

local state_key = KEYS[1]

local state = redis.call('HMGET', state_key, 'epoch', 'last_number')
if state[1] ~= ARGV[1] then return nil end
-- Also segments of tables and columns that the caller's version does not know, since processes of several versions may be at
-- work.
for _, field in ipairs(redis.call('HKEYS', state_key)) do
  if string.sub(field, 1, 5) == 'open.' then redis.call('HDEL', state_key, field) end
end
return state[2] or '0'
