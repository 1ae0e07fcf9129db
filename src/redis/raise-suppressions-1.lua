-- Has a shard refuse commits of API processes that do not know the suppressions of a version, and seals its open segments.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment   2  version of the suppressions
-- Returns the highest number that was given, as text: every record that was stored without knowing that version is in a
-- segment up to it. Nil when this Redis is not that deployment's.

local state_key, epoch, version = KEYS[1], ARGV[1], ARGV[2]

local state = redis.call('HMGET', state_key, 'epoch', 'suppression_version', 'last_number')
if state[1] ~= epoch then return nil end
if tonumber(version) > tonumber(state[2] or '0') then redis.call('HSET', state_key, 'suppression_version', version) end
for _, field in ipairs(redis.call('HKEYS', state_key)) do
  if string.sub(field, 1, 5) == 'open.' then redis.call('HDEL', state_key, field) end
end
return state[3] or '0'
