-- Takes the right to load the deployment into an emptied Redis. One process at a time has it: two processes could read
-- from ClickHouse at different times, and the older data could overwrite the newer.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  documents (hash)
-- ARGV  1  nonce of the caller   2  its lifetime in ms, which the caller renews   3  key of the deployment's document
-- Returns the time in microseconds when taken, 0 while another has it, -1 when Redis is loaded.

if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[3], ARGV[3]) == 1 then return -1 end
if redis.call('EXISTS', KEYS[2]) == 1 then
  -- A right that was taken before the clock was set back would last longer by the difference. So it is shortened; its owner renews it.
  redis.call('PEXPIRE', KEYS[2], ARGV[2], 'LT')
  return 0
end
-- An epoch without its deployment is worthless, and would block the load.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
local time = redis.call('TIME')
return string.format('%s%06d', time[1], time[2])
