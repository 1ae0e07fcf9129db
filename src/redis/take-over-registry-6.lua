-- Records which server is the deployment's primary, by the id that Redis gives itself whenever it becomes one. If it is another one than
-- before, versions continue above those that the former one may have given since the two were separated. An API process may know
-- changes that were lost with it, and then reads everything again.
--
-- KEYS  1  epoch   2  the primary (hash): id, take_overs   3  version of the documents
--       4  state of all suppressions (hash): version   5  version of the second copies
--       6  changes of suppressions (sorted set by version). A take-over is a change of no account, with the previous version on a fifth
--          line
-- ARGV  1  epoch of the deployment   2  id of this server   3  versions of documents to skip
--       4  microseconds to skip of those of the suppressions and of the second copies
-- Returns how often another server took over, and the version of the suppressions; nil when this Redis is not that deployment's.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return nil end
local id = redis.call('HGET', KEYS[2], 'id')
local version = redis.call('HGET', KEYS[4], 'version') or '0'
if id and id ~= ARGV[2] then
  local time = redis.call('TIME')
  local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local of_documents = math.max(tonumber(redis.call('GET', KEYS[3]) or '0') + tonumber(ARGV[3]), now_us)
  redis.call('SET', KEYS[3], string.format('%.0f', of_documents))
  local of_copies = math.max(tonumber(redis.call('GET', KEYS[5]) or '0'), now_us) + tonumber(ARGV[4])
  redis.call('SET', KEYS[5], string.format('%.0f', of_copies))
  local before = version
  version = string.format('%.0f', math.max(tonumber(version), now_us) + tonumber(ARGV[4]))
  redis.call('HSET', KEYS[4], 'version', version)
  redis.call('ZADD', KEYS[6], version, version .. ' \n\n\n\n' .. before)
  redis.call('HINCRBY', KEYS[2], 'take_overs', 1)
end
if id ~= ARGV[2] then redis.call('HSET', KEYS[2], 'id', ARGV[2]) end
return { tonumber(redis.call('HGET', KEYS[2], 'take_overs') or '0'), version }
