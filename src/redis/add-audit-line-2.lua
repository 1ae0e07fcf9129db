-- Keeps a line of the audit log until ClickHouse has it. One step with the look at the epoch: a Redis that was emptied
-- forgets what is written into it when its state is loaded.
--
-- KEYS  1  epoch   2  lines that ClickHouse does not have yet (hash)
-- ARGV  1  name of the line   2  the line   3  how many lines may wait; 0: any number
-- Returns 1 when kept, 0 when too many wait, -2 when this Redis does not hold the deployment.

if not redis.call('GET', KEYS[1]) then return -2 end
local max = tonumber(ARGV[3])
if max > 0 and redis.call('HLEN', KEYS[2]) >= max then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 1
