-- Hands a shard over to a new primary. The former one may have gone on serving those who still reached it. So segments that it had open
-- take no more records, numbers continue above those that it may have given since, and commits need the new version of the suppressions.
--
-- KEYS  1  state of the shard (hash): epoch, primary, last_number, suppression_version, open.<table>
-- ARGV  1  epoch of the deployment   2  id of this server   3  microseconds, and so numbers, to skip
--       4  version of the suppressions
-- Returns 1 if another server had the shard before, else 0; nil when this Redis is not that deployment's.

local state = redis.call('HMGET', KEYS[1], 'epoch', 'primary', 'last_number', 'suppression_version')
if state[1] ~= ARGV[1] then return nil end
if state[2] == ARGV[2] then return 0 end
if state[2] then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 5) == 'open.' then redis.call('HDEL', KEYS[1], field) end
  end
  local time = redis.call('TIME')
  local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  -- Workers may have stored records that only the former one counted.
  redis.call('HDEL', KEYS[1], 'ledger_since')
  -- A former primary whose clock is behind counts on from its last number, one by one, and never opens a million segments meanwhile.
  local number = math.max(now_us + tonumber(ARGV[3]), tonumber(state[3] or '0') + 1000000)
  redis.call('HSET', KEYS[1], 'last_number', string.format('%.0f', number))
  if tonumber(ARGV[4]) > tonumber(state[4] or '0') then redis.call('HSET', KEYS[1], 'suppression_version', ARGV[4]) end
end
redis.call('HSET', KEYS[1], 'primary', ARGV[2])
return state[2] and 1 or 0
