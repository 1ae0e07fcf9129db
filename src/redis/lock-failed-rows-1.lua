-- Takes the lock of the failed rows. A round of deletions, an end of retention, the restore of a backup and the beginning of a
-- move of a shard may each take it over from another of its kind, since that one may have been killed. A round may also take it
-- from an end of retention, so that deletions wait for none that was killed. All of these are safe. All others wait until it is free.
--
-- KEYS  1  the lock
-- ARGV  1  kind of the caller, "round", "retention", "retry", "restore" or "move"   2  "<kind> <owner>"   3  its lifetime in ms
-- Returns 1 when taken, else 0.

local holder = redis.call('GET', KEYS[1])
local former = holder and string.match(holder, '^%a+')
local taken_over = former and (former == ARGV[1] and former ~= 'retry' or former == 'retention' and ARGV[1] == 'round')
if holder and not taken_over then
  -- If it was taken before the clock was set back, it would last longer by that time. So it is shortened; its owner renews it.
  redis.call('PEXPIRE', KEYS[1], ARGV[3], 'LT')
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
