#!lua flags=allow-oom
-- Takes a lease, which one process at a time holds, or renews it for its holder. Allowed when Redis is full, since the work under some
-- leases makes room.
--
-- KEYS  1  the lease
-- ARGV  1  how long it lasts, in ms   2  who takes it
--       3…  whom it may be taken from: those whose name begins with one of these words
-- Returns 1 when taken, else 0.

local holder = redis.call('GET', KEYS[1])
local is_free = not holder or holder == ARGV[2]
for i = 3, #ARGV do is_free = is_free or string.match(holder, '^%a+') == ARGV[i] end
if is_free then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
  return 1
end
-- A lease that was taken before Redis's clock was set back would last longer by the difference. So it is shortened; its holder renews it.
redis.call('PEXPIRE', KEYS[1], ARGV[1], 'LT')
return 0
