-- Stores a deletion request with its targets, if its account has room for another pending one. One step, so
-- that a request is never half stored.
--
-- KEYS  1  epoch   2  deletion requests (hash)   3  pending requests (sorted set by time)
--       4  targets of the request   5  requests to mirror (set)
--       6  requests whose targets ClickHouse does not have yet (set)
-- ARGV  1  epoch of the deployment   2  request id   3  its document   4  its targets   5  account id
--       6  pending requests an account may have
-- Returns 1 when stored, 0 when the account has too many, -2 when this is another deployment's Redis.

local epoch_key, requests_key, pending_key, targets_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local unmirrored_key, unkept_key = KEYS[5], KEYS[6]
local epoch, id, document, targets, account_id, pending_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

if redis.call('GET', epoch_key) ~= epoch then return -2 end
local pending = 0
for _, member in ipairs(redis.call('ZRANGE', pending_key, 0, -1)) do
  if string.sub(member, 1, #account_id + 1) == account_id .. ' ' then pending = pending + 1 end
end
if pending >= pending_max then return 0 end
-- Requests are carried out in the order in which they came, also when the clock was set back.
local time = redis.call('TIME')
local score = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local last = redis.call('ZRANGE', pending_key, -1, -1, 'WITHSCORES')[2]
if last then score = math.max(score, tonumber(last) + 1) end
redis.call('SET', targets_key, targets)
redis.call('HSET', requests_key, id, document)
redis.call('ZADD', pending_key, string.format('%.0f', score), account_id .. ' ' .. id)
redis.call('SADD', unmirrored_key, id)
redis.call('SADD', unkept_key, id)
return 1
