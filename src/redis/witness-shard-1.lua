#!lua flags=allow-oom
-- Checks that a shard is as new as the caller has seen it, and raises its number. A shard that is older was set back: it is no longer the
-- deployment's, as if its Redis had been emptied. What it has yet to store stays and is stored when the shard is loaded again; its open
-- segments are sealed, since other segments may have grown under the same numbers.
--
-- KEYS  1  state of the shard (hash): epoch, witness, stored_to, stored_records
-- ARGV  1  epoch of the deployment   2  the lowest number that does not count as older   3  the number to raise to
-- Returns the number, the highest number that was stored, and how many records were ever stored, as texts; "old" if this call found an
-- older one; nil when this Redis is not that deployment's.

local state = redis.call('HMGET', KEYS[1], 'epoch', 'witness', 'stored_to', 'stored_records')
if state[1] ~= ARGV[1] then return nil end
local number = tonumber(state[2] or '0')
if number < tonumber(ARGV[2]) then
  redis.call('HDEL', KEYS[1], 'epoch')
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 5) == 'open.' then redis.call('HDEL', KEYS[1], field) end
  end
  return 'old'
end
if tonumber(ARGV[3]) > number then
  number = tonumber(ARGV[3])
  redis.call('HSET', KEYS[1], 'witness', ARGV[3])
end
return { string.format('%.0f', number), state[3] or '0', state[4] or '0' }
