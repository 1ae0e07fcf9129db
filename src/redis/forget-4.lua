-- Forgets a segment that ClickHouse has: its bytes, its entry among the outstanding segments, its share of the backlog and
-- its burnt tokens. Records how far the shard is stored. One step, so that the size of the backlog stays exact and nothing of
-- the segment is left. May be called again.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)   3  rows per segment (hash)
--       4  the segment
-- ARGV  1  its member, "<table>:<number>"
-- Returns 1 when it was outstanding, else 0. Cost in commands: 11.

local state_key, segments_key, rows_key, segment_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member = ARGV[1]

if redis.call('ZREM', segments_key, member) == 0 then return 0 end
-- Subtracted from zero: a segment may have no rows, and the negative of zero is "-0", which Redis does not accept as an
-- integer.
redis.call('HINCRBY', state_key, 'bytes', 0 - redis.call('STRLEN', segment_key))
local rows = tonumber(redis.call('HGET', rows_key, member) or '0')
redis.call('HINCRBY', state_key, 'rows', 0 - rows)
redis.call('HINCRBY', state_key, 'stored_records', rows)
local number = string.match(member, '(%d+)$')
if tonumber(number) > tonumber(redis.call('HGET', state_key, 'stored_to') or '0') then
  redis.call('HSET', state_key, 'stored_to', number)
end
redis.call('HDEL', rows_key, member)
redis.call('HDEL', string.sub(state_key, 1, -6) .. 'burnt_tokens', member)
redis.call('UNLINK', segment_key)
return 1
