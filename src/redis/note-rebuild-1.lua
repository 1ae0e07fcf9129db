#!lua flags=allow-oom
-- Asks workers to rebuild the index of keys, or records how far they are, unless another process has recorded something else meanwhile.
-- Allowed when Redis is full: segments that wait for the index make room.
--
-- KEYS  1  state of the shard (hash): keys_rebuild
-- ARGV  1  epoch of the deployment   2  what is recorded, empty if nothing is   3  what to record, empty to end it
-- Returns 1 if it was recorded, else 0; nil when this Redis is not that deployment's.

local state = redis.call('HMGET', KEYS[1], 'epoch', 'keys_rebuild')
if state[1] ~= ARGV[1] then return nil end
if (state[2] or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], 'keys_rebuild') else redis.call('HSET', KEYS[1], 'keys_rebuild', ARGV[3]) end
return 1
