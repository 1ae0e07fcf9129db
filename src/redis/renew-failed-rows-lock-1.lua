-- Renews the lock of the failed rows, if it is still the caller's.
--
-- KEYS  1  the lock
-- ARGV  1  "<kind> <owner>"   2  its lifetime in ms
-- Returns 1 when the caller holds it, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
