-- Loads which deletion requests have a callback that is due.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  requests with a callback that is due (set)
-- ARGV  1  nonce of the caller   2…  request ids
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
for i = 2, #ARGV do redis.call('SADD', KEYS[3], ARGV[i]) end
return 1
