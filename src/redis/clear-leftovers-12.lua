-- Removes what an interrupted load left, so that only what ClickHouse has is loaded. Without an epoch nothing was accepted
-- since.
--
-- KEYS  1  epoch   2  nonce of the loading process   3…  what is removed
-- ARGV  1  nonce of the caller
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
