-- Raises the last number of a shard that is not loaded yet above every number that was given before, so that ClickHouse
-- can be told to refuse segments up to it. Once the shard is loaded, by any process, it gives higher numbers.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment   2  highest number that is known elsewhere   3  nonce of the caller: only the process that
--       reserved last, in this Redis, may load the shard
-- Returns the number as text; nil if the shard is loaded, since it already gives numbers of its own.

local state_key, epoch, number_floor = KEYS[1], ARGV[1], tonumber(ARGV[2])

local state = redis.call('HMGET', state_key, 'epoch', 'last_number')
if state[1] == epoch then return nil end
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local number = string.format('%.0f', math.max(tonumber(state[2] or '0'), number_floor, now_us))
redis.call('HSET', state_key, 'last_number', number, 'loading', ARGV[3])
return number
