-- Stores the request of an export, if its account has room for another one. Reads the list of pending deletions in the same step: all that
-- are in it come before the export, all others after it. Its cost does not grow with the requests of others.
--
-- KEYS  1  epoch   2  exports (sorted set by the time of their end)   3  the export's request
--       4  weights of exports (hash)   5  exports by account (sorted set of the same members)
--       6  pending deletion requests by account (sorted set)
-- ARGV  1  epoch of the deployment   2  export id   3  its document   4  account id   5  milliseconds until its end
--       6  exports an account may have   7  weight of its document, without the ids of the deletions
--       8  the most that an account's exports may weigh   9  the same of all accounts: as much as one account may have is kept free for
--          accounts that have nothing pending
-- Returns 1 when stored, 0 when the account has too many, -2 when this is another deployment's Redis, -3 when the account's
-- would weigh too much, -4 when all would.
-- The stored text is a line with the ids of the account's pending deletions, and the document.

local epoch_key, exports_key, request_key, weights_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local exports_by_account_key, pending_by_account_key = KEYS[5], KEYS[6]
local epoch, id, document, account, kept_ms, exports_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4] .. ' ', tonumber(ARGV[5]), tonumber(ARGV[6])
local first, last = '[' .. account, '[' .. ARGV[4] .. '!'
local weight, account_weight_max, weight_max = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

if redis.call('GET', epoch_key) ~= epoch then return -2 end
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- Few end at about the same time; what is left is removed next time.
local ended = redis.call('ZRANGEBYSCORE', exports_key, '-inf', string.format('%.0f', now_ms), 'LIMIT', 0, 1000)
for _, member in ipairs(ended) do
  redis.call('ZREM', exports_key, member)
  redis.call('ZREM', exports_by_account_key, member)
  local ended_weight, ended_account = tonumber(redis.call('HGET', weights_key, member) or '0'), string.match(member, '^%S+')
  redis.call('HDEL', weights_key, member)
  if redis.call('HINCRBY', weights_key, ended_account, 0 - ended_weight) == 0 then redis.call('HDEL', weights_key, ended_account) end
  redis.call('HINCRBY', weights_key, '', 0 - ended_weight)
end
if redis.call('ZLEXCOUNT', exports_by_account_key, first, last) >= exports_max then return 0 end
local earlier = redis.call('ZRANGEBYLEX', pending_by_account_key, first, last)
for at, member in ipairs(earlier) do earlier[at] = string.sub(member, #account + 1) end
weight = weight + 37 * #earlier
local weights = redis.call('HMGET', weights_key, ARGV[4], '')
local account_weight, all_weight = tonumber(weights[1] or '0'), tonumber(weights[2] or '0')
if account_weight + weight > account_weight_max then return -3 end
local kept_free = account_weight > 0 and account_weight_max or 0
if all_weight + weight > weight_max - kept_free then return -4 end
redis.call('SET', request_key, table.concat(earlier, ' ') .. '\n' .. document, 'PX', kept_ms)
redis.call('ZADD', exports_key, string.format('%.0f', now_ms + kept_ms), account .. id)
redis.call('ZADD', exports_by_account_key, 0, account .. id)
redis.call('HSET', weights_key, account .. id, weight)
redis.call('HINCRBY', weights_key, ARGV[4], weight)
redis.call('HINCRBY', weights_key, '', weight)
return 1
