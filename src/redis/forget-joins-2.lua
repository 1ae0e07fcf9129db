-- Forgets anonymous users that a shard's commits have joined to suppressed ones, once the shard accepts only commits of processes that know
-- them from the list of suppressions. A user who was joined again under another name meanwhile stays.
--
-- KEYS  1  state of the shard (hash)   2  joined users of the shard (hash)
-- ARGV  name and value in turn, as they were read
-- Returns how many are left.

for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[i + 1] then redis.call('HDEL', KEYS[2], ARGV[i]) end
end
local left = redis.call('HLEN', KEYS[2])
redis.call('HSET', KEYS[1], 'joined', left)
return left
