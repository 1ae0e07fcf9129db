-- Removes what an interrupted load, or a Redis that was set back, has left of the registry, so that only what ClickHouse has is
-- loaded. Without an epoch nothing was accepted since.
--
-- KEYS  1  epoch   2  nonce of the loading process
-- ARGV  1  nonce of the caller   2…  keys of the registry
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
for i = 2, #ARGV do redis.call('UNLINK', ARGV[i]) end
return 1
