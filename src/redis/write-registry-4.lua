-- Writes documents of the registry, if no other process has written since the caller read it. One step, so that no reader sees half
-- of a change to several documents (each account has one main environment).
--
-- KEYS  1  epoch   2  documents (hash)   3  version   4  what ClickHouse lacks (sorted set)
-- ARGV  1  epoch of the deployment   2  version that the caller read
--       3… key and document in turn; an empty document removes
-- Returns the new version, -1 if the caller has to read again, -2 if this is another deployment's Redis.
--
-- Versions follow the clock, in microseconds: readers cache what they read by its version. So a Redis that has lost its last second, as
-- `appendfsync everysec` allows, must not give a version twice.

local epoch_key, documents_key, version_key, uncopied_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

if redis.call('GET', epoch_key) ~= ARGV[1] then return -2 end
if (redis.call('GET', version_key) or '0') ~= ARGV[2] then return -1 end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', documents_key, ARGV[i])
  else
    redis.call('HSET', documents_key, ARGV[i], ARGV[i + 1])
  end
  redis.call('ZADD', uncopied_key, 3, ARGV[i])
end
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- Where versions are ahead of the clock, they grow by some milliseconds, which differ from change to change.
local version = string.format('%.0f', math.max(tonumber(ARGV[2]) + 1 + now_us % 10000, now_us))
redis.call('SET', version_key, version)
return version
