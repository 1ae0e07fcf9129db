#!lua flags=allow-oom
-- Notes that the keys of all segments up to a number are in the index, so that their claims may be forgotten.
-- Allowed when Redis is full: segments that wait for the index make room.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment   2  the number
-- Returns 1; nil when this Redis is not that deployment's.

local state = redis.call('HMGET', KEYS[1], 'epoch', 'keys_indexed_to')
if state[1] ~= ARGV[1] then return nil end
-- Another worker may have come further meanwhile.
if tonumber(ARGV[2]) > tonumber(state[2] or '0') then redis.call('HSET', KEYS[1], 'keys_indexed_to', ARGV[2]) end
return 1
