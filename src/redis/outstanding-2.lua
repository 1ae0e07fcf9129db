-- Returns the lowest number of the segments that ClickHouse does not have yet. Checks the epoch in the same step: an emptied
-- Redis has no such segments either, while their inserts may still be under way.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)
-- ARGV  1  epoch of the deployment
-- Returns that number as text, '' when there is none, and the last number that was given to a segment, '0' when none was;
-- nil when this Redis is not that deployment's.

local state = redis.call('HMGET', KEYS[1], 'epoch', 'last_number')
if state[1] ~= ARGV[1] then return nil end
local oldest = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
return { oldest and string.match(oldest, ':(%d+)$') or '', state[2] or '0' }
