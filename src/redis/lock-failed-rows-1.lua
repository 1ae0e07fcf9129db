-- Takes the lock of the failed rows. A round of deletions may take it over from another round, and the restore of a backup
-- from another restore, since that one may have been killed; both are safe. Everybody else waits until it is free.
--
-- KEYS  1  the lock
-- ARGV  1  kind of the caller, "round", "retry" or "restore"   2  "<kind> <owner>"   3  its lifetime in ms
-- Returns 1 when taken, else 0.

local holder = redis.call('GET', KEYS[1])
local taken_over = ARGV[1] ~= 'retry' and holder and string.sub(holder, 1, #ARGV[1] + 1) == ARGV[1] .. ' '
if holder and not taken_over then
  -- If it was taken before the clock was set back, it would last longer by that time. So it is shortened; its owner renews it.
  redis.call('PEXPIRE', KEYS[1], ARGV[3], 'LT')
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
