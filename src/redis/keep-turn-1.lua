-- Renews the caller's lease, or ends it; does nothing if another process has taken the lease since.
--
-- KEYS  1  the lease
-- ARGV  1  who took it   2  for how long from now, in ms; 0 to end it
-- Returns 1 if it was the caller's, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
