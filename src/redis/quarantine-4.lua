#!lua flags=allow-oom
-- Removes the rows that ClickHouse refuses for their data from a sealed segment, by replacing its bytes. The caller has
-- already stored those rows elsewhere. May be called again: it acts only on the bytes that it is meant for.
-- Allowed when Redis is full, since it makes room.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)   3  rows per segment (hash)
--       4  the segment, perhaps compressed
-- ARGV  1  its member   2  length in bytes of its rows as the caller read it   3  the bytes that remain
--       4  how many rows were removed
-- Returns 1 when replaced, else 0. Cost in commands: 7.

local state_key, segments_key, rows_key, segment_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, length_was, remaining, rows_taken = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

if not redis.call('ZSCORE', segments_key, member) then return 0 end
local stored_length = redis.call('STRLEN', segment_key)
-- A compressed segment begins with the length of its rows (segment-bytes.ts), which only this script changes.
local length = tonumber(string.match(redis.call('GETRANGE', segment_key, 0, 15), '^z(%d+):')) or stored_length
if length ~= length_was then return 0 end
redis.call('SET', segment_key, remaining)
redis.call('HINCRBY', state_key, 'bytes', #remaining - stored_length)
redis.call('HINCRBY', state_key, 'rows', -rows_taken)
redis.call('HINCRBY', rows_key, member, -rows_taken)
return 1
