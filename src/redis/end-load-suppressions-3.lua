-- Sets the version of suppressions that were loaded into an emptied Redis. It comes after all names: a process that reads it first and
-- then the names has all of them, or finds a higher version later.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  state of all suppressions (hash)
-- ARGV  1  nonce of the caller   2  version, above every one that was known before
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
redis.call('HSET', KEYS[3], 'version', ARGV[2], 'mirrored', ARGV[2], 'changes_from', ARGV[2])
return 1
