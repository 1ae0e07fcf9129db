-- Returns how far the index of keys may reach: ClickHouse has every segment up to this number. Checks the epoch in the same
-- step: an emptied Redis has no outstanding segments either, while their inserts may still be under way.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)
-- ARGV  1  epoch of the deployment
-- Returns the number as text, nil when this Redis is not that deployment's.

local state = redis.call('HMGET', KEYS[1], 'epoch', 'last_number')
if state[1] ~= ARGV[1] then return nil end
local oldest = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
if not oldest then return state[2] or '0' end
return string.format('%.0f', tonumber(string.match(oldest, '(%d+)$')) - 1)
