-- Frees the lock of the failed rows, if it is still the caller's.
--
-- KEYS  1  the lock
-- ARGV  1  "<kind> <owner>"
-- Returns 1 when freed, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
