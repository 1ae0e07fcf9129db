-- Returns the lowest number of the segments that ClickHouse does not have yet. Checks the epoch in the same step: an emptied
-- Redis has no such segments either, while their inserts may still be under way.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)
-- ARGV  1  epoch of the deployment
-- Returns the number as text, '' when there is none, nil when this Redis is not that deployment's.

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return nil end
local oldest = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
if not oldest then return '' end
return string.match(oldest, ':(%d+)$')
