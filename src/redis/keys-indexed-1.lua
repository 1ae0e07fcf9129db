#!lua flags=allow-oom
-- Records that the keys of all segments up to a number are in the index, so that their claims may be forgotten, and the index's
-- generation, by which workers tell whether their filters are of this index.
-- Allowed when Redis is full: segments that wait for the index make room.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment   2  the number   3  the generation (above 2^53: as text, of 19 digits)
-- Returns 1; nil when this Redis is not that deployment's.

local state = redis.call('HMGET', KEYS[1], 'epoch', 'keys_indexed_to', 'keys_generation')
if state[1] ~= ARGV[1] then return nil end
-- Another worker may have come further meanwhile.
if tonumber(ARGV[2]) > tonumber(state[2] or '0') then redis.call('HSET', KEYS[1], 'keys_indexed_to', ARGV[2]) end
if ARGV[3] > (state[3] or '') then redis.call('HSET', KEYS[1], 'keys_generation', ARGV[3]) end
return 1
