-- Loads which requests each account has, for its list.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  requests by account and time (sorted set)
-- ARGV  1  nonce of the caller   2…  its members
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
for i = 2, #ARGV do redis.call('ZADD', KEYS[3], 0, ARGV[i]) end
return 1
