-- Renews the right to load the deployment, or releases it.
--
-- KEYS  1  nonce of the loading process
-- ARGV  1  nonce of the caller   2  its lifetime in ms from now on; 0 releases it
-- Returns 1 if the caller still has it, else nil: Redis was emptied, or another process has taken it.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return nil end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
