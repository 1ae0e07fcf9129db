-- Keeps a line of the audit log until ClickHouse has it. Checks the epoch in the same step, since what is written into an emptied Redis is
-- forgotten when its state is loaded. An account may have no more waiting lines than there is room left for others: while ClickHouse is
-- away, one account's actions must not use up the room of all.
--
-- KEYS  1  epoch   2  lines that ClickHouse does not have yet (hash)   3  how many of them each account has (hash)
--       4  what ClickHouse lacks (sorted set)
-- ARGV  1  name of the line, which ends with the account, or empty   2  the line   3  how many lines may wait; 0: any number
-- Returns 1 when kept, 0 when too many wait, -2 when this Redis does not hold the deployment.

if not redis.call('GET', KEYS[1]) then return -2 end
local max, account = tonumber(ARGV[3]), string.match(ARGV[1], '^%S+ %S+ (.*)$')
local own = tonumber(redis.call('HGET', KEYS[3], account) or '0')
if max > 0 and own >= max - redis.call('HLEN', KEYS[2]) then return 0 end
if redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) == 1 then redis.call('HINCRBY', KEYS[3], account, 1) end
redis.call('ZADD', KEYS[4], 1, ARGV[1])
return 1
