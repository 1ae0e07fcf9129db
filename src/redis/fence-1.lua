-- Seals all open segments of a shard and returns the highest number that was given. Every record acknowledged before is in
-- a segment up to it, every later record in a segment above it. With a version of the suppressions the shard also refuses
-- commits of API processes that do not know it: later records are accepted only by processes that do.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment   2  version of the suppressions, if it is to be binding
-- Returns the highest number as text, or nil when this Redis is not that deployment's.

local state_key, epoch, version = KEYS[1], ARGV[1], ARGV[2]

local state = redis.call('HMGET', state_key, 'epoch', 'suppression_version', 'last_number')
if state[1] ~= epoch then return nil end
if version and tonumber(version) > tonumber(state[2] or '0') then redis.call('HSET', state_key, 'suppression_version', version) end
-- This also seals segments of tables and columns that the caller's version does not know, since processes of several versions may be at
-- work.
for _, field in ipairs(redis.call('HKEYS', state_key)) do
  if string.sub(field, 1, 5) == 'open.' then redis.call('HDEL', state_key, field) end
end
return state[3] or '0'
