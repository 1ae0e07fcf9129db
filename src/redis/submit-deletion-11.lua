-- Stores a deletion request with its list of users, if its account has room for another pending one. If the account has
-- named an earlier request by the same reference, nothing is stored. One step, so that a request is never half stored, and
-- of two that come at once with one reference only one is. Its cost does not grow with the pending requests of others.
--
-- KEYS  1  epoch   2  deletion requests (hash)   3  pending requests (sorted set by time)
--       4  list of users of the request   5  what ClickHouse lacks (sorted set)
--       6  requests whose targets ClickHouse does not have yet (set)   7  requests by account and time (sorted set)
--       8  the reference: hash of the list that came with it, and request id   9  weights of pending requests (hash)
--      10  pending requests by account (sorted set of the same members)
--      11  present for a while after the account has asked for its rows to be erased at once
-- ARGV  1  epoch of the deployment   2  request id   3  its document   4  its list   5  account id
--       6  pending requests an account may have   7  hash of its list; empty without a reference
--       8  milliseconds that a reference is remembered   9  weight of its list
--       10  the most that an account's pending requests may weigh   11  the same of all accounts: as much as one
--           account may have is kept free for accounts that have nothing pending
--       12  milliseconds until the account may ask for immediate erasure again; empty if it does not ask for it
-- Returns 1 when stored, 0 when the account has too many, -1 when the reference came with another list, -2 when this is
-- another deployment's Redis, -3 when the account's lists would weigh too much, -4 when all would, -5 when it may not ask for immediate
-- erasure again yet, and the id of the earlier request when the reference came with the same list.

local epoch_key, requests_key, pending_key, list_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local uncopied_key, unkept_key, listed_key, reference_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local weights_key, by_account_key, erasure_key = KEYS[9], KEYS[10], KEYS[11]
local epoch, id, document, list, account_id, pending_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local list_hash, reference_ms = ARGV[7], ARGV[8]
local weight, account_weight_max, weight_max = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])

if redis.call('GET', epoch_key) ~= epoch then return -2 end
local earlier = list_hash ~= '' and redis.call('GET', reference_key)
if earlier then
  local gap = string.find(earlier, ' ', 1, true)
  local earlier_id = string.sub(earlier, gap + 1)
  local kept = redis.call('HGET', requests_key, earlier_id)
  local state = kept and cjson.decode(kept).state or 'ended'
  -- A request that will never be carried out has to be submitted again, and may have the same reference.
  if state ~= 'targets_lost' and state ~= 'ended' then
    if string.sub(earlier, 1, gap - 1) == list_hash then return earlier_id end
    return -1
  end
end
if redis.call('ZLEXCOUNT', by_account_key, '[' .. account_id .. ' ', '[' .. account_id .. '!') >= pending_max then return 0 end
local weights = redis.call('HMGET', weights_key, account_id, '')
local account_weight, all_weight = tonumber(weights[1] or '0'), tonumber(weights[2] or '0')
if account_weight + weight > account_weight_max then return -3 end
local kept_free = account_weight > 0 and account_weight_max or 0
if all_weight + weight > weight_max - kept_free then return -4 end
local erasure_ms = ARGV[12]
if erasure_ms ~= '' and redis.call('EXISTS', erasure_key) == 1 then return -5 end
-- Requests are carried out and listed in the order in which they came, even if the clock was set back.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local score = now
local last = redis.call('ZRANGE', pending_key, -1, -1, 'WITHSCORES')[2]
if last then score = math.max(score, tonumber(last) + 1) end
local listed_at = now
local newest = redis.call('ZREVRANGEBYLEX', listed_key, '[' .. account_id .. '!', '[' .. account_id .. ' ', 'LIMIT', 0, 1)[1]
if newest then listed_at = math.max(listed_at, tonumber(string.match(newest, ' (%d+) ')) + 1) end
if erasure_ms ~= '' then redis.call('SET', erasure_key, id, 'PX', erasure_ms) end
redis.call('SET', list_key, list)
redis.call('HSET', requests_key, id, document)
redis.call('ZADD', pending_key, string.format('%.0f', score), account_id .. ' ' .. id)
redis.call('ZADD', by_account_key, 0, account_id .. ' ' .. id)
redis.call('HSET', weights_key, account_id .. ' ' .. id, weight)
redis.call('HINCRBY', weights_key, account_id, weight)
redis.call('HINCRBY', weights_key, '', weight)
redis.call('ZADD', listed_key, 0, account_id .. ' ' .. string.format('%014.0f', listed_at) .. ' ' .. id)
redis.call('ZADD', uncopied_key, 4, id)
redis.call('SADD', unkept_key, id)
if list_hash ~= '' then redis.call('SET', reference_key, list_hash .. ' ' .. id, 'PX', reference_ms) end
return 1
