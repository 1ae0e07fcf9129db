#!lua flags=allow-oom
-- Replaces a sealed segment's bytes by their compressed form. May be called again. Allowed when Redis is full, since it
-- makes room.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)   3  the segment
-- ARGV  1  its table   2  its number   3  its length in bytes as the caller read it   4  the compressed form
-- Returns 1 when replaced, 0 when it is not outstanding or not as the caller read it, -1 when it is open.
-- Cost in commands: 5.

local state_key, segments_key, segment_key = KEYS[1], KEYS[2], KEYS[3]
local table_name, number, length_was, compressed = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

if not redis.call('ZSCORE', segments_key, table_name .. ':' .. number) then return 0 end
local open = redis.call('HGET', state_key, 'open.' .. table_name)
if open and string.match(open, '^(%d+) ') == number then return -1 end
-- If rows were removed since, the segment is shorter; if it was compressed since, it begins with z, as rows never do.
if redis.call('STRLEN', segment_key) ~= length_was then return 0 end
if redis.call('GETRANGE', segment_key, 0, 0) == 'z' then return 0 end
redis.call('SET', segment_key, compressed)
redis.call('HINCRBY', state_key, 'bytes', #compressed - length_was)
return 1
