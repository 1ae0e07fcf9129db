-- Stores the request of an export, if its account has room for another one. One step with the list of pending deletions: all
-- that are in it come before the export, all others after it.
--
-- KEYS  1  epoch   2  exports (sorted set by the time of their end)   3  the export's request
--       4  pending deletion requests (sorted set)
-- ARGV  1  epoch of the deployment   2  export id   3  its document   4  account id   5  milliseconds until its end
--       6  exports an account may have
-- Returns 1 when stored, 0 when the account has too many, -2 when this is another deployment's Redis.
-- The stored text is a line with the ids of the account's pending deletions, and the document.

local epoch_key, exports_key, request_key, pending_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, id, document, account, kept_ms, exports_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4] .. ' ', tonumber(ARGV[5]), tonumber(ARGV[6])

if redis.call('GET', epoch_key) ~= epoch then return -2 end
local function its_ids(members)
  local ids = {}
  for _, member in ipairs(members) do
    if string.sub(member, 1, #account) == account then ids[#ids + 1] = string.sub(member, #account + 1) end
  end
  return ids
end
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', exports_key, '-inf', string.format('%.0f', now_ms))
if #its_ids(redis.call('ZRANGE', exports_key, 0, -1)) >= exports_max then return 0 end
local earlier = its_ids(redis.call('ZRANGE', pending_key, 0, -1))
redis.call('SET', request_key, table.concat(earlier, ' ') .. '\n' .. document, 'PX', kept_ms)
redis.call('ZADD', exports_key, string.format('%.0f', now_ms + kept_ms), account .. id)
return 1
