-- Takes the lock of the failed rows. A round of deletions may take it over from another round, which is safe and
-- may have been killed; everybody else waits until it is free.
--
-- KEYS  1  the lock
-- ARGV  1  kind of the caller, "round" or "retry"   2  "<kind> <owner>"   3  its lifetime in ms
-- Returns 1 when taken, else 0.

local holder = redis.call('GET', KEYS[1])
if holder and not (ARGV[1] == 'round' and string.sub(holder, 1, 6) == 'round ') then
  -- One that was taken before the clock was set back would last for as long as that; its owner renews it.
  redis.call('PEXPIRE', KEYS[1], ARGV[3], 'LT')
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
