#!lua flags=allow-oom
-- Replaces a segment's bytes by their compressed form, or by the rows that are left when ClickHouse refuses some; the caller has
-- already stored those elsewhere. May be called again: it acts only on the bytes that it is meant for. Allowed when Redis is full, since
-- it makes room.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)   3  rows per segment (hash)
--       4  the segment, perhaps compressed
-- ARGV  1  its member, "<table>:<number>"   2  length in bytes of its rows as the caller read it   3  the new bytes
--       4  how many rows they lack; 0 for the compressed form
-- Returns 1 when replaced, 0 when it is not outstanding or not as the caller read it, -1 when it is open and so not to be compressed yet.
-- Cost in commands: 6, with fewer rows 8.

local state_key, segments_key, rows_key, segment_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, length_was, bytes, rows_taken = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

if not redis.call('ZSCORE', segments_key, member) then return 0 end
local table_name, number = string.match(member, '^(.+):(%d+)$')
local open = redis.call('HGET', state_key, 'open.' .. table_name)
if rows_taken == 0 and open and string.match(open, '^(%d+) ') == number then return -1 end
local stored_length = redis.call('STRLEN', segment_key)
-- A compressed segment begins with the length of its rows (segment-bytes.ts), which only this script changes; rows never begin with z.
local length = tonumber(string.match(redis.call('GETRANGE', segment_key, 0, 15), '^z(%d+):'))
if (length and rows_taken == 0) or (length or stored_length) ~= length_was then return 0 end
redis.call('SET', segment_key, bytes)
redis.call('HINCRBY', state_key, 'bytes', #bytes - stored_length)
if rows_taken > 0 then
  redis.call('HINCRBY', state_key, 'rows', -rows_taken)
  redis.call('HINCRBY', rows_key, member, -rows_taken)
end
return 1
