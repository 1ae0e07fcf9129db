-- Makes a shard ready to take commits for a deployment: sets its epoch last, and never lets its numbers fall
-- below what ClickHouse has seen, since a repeated number would be a repeated token. May be called again.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment   2  highest number that was given before   3  buckets for claims: a power of two
--       4  nonce with which the caller reserved its numbers
-- Returns 1 when the shard was loaded by this call, 0 when it was before; nil when the numbers that the caller
-- reserved are gone: Redis was emptied, or another load reserved since.

local state_key, epoch, number_floor, bucket_count = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

local loaded = redis.call('HGET', state_key, 'epoch') == epoch
if not loaded and redis.call('HGET', state_key, 'loading') ~= ARGV[4] then return nil end
local last_number = tonumber(redis.call('HGET', state_key, 'last_number') or '0')
if number_floor > last_number then
  redis.call('HSET', state_key, 'last_number', string.format('%.0f', number_floor))
end
redis.call('HSETNX', state_key, 'claim_bucket_count', bucket_count)
redis.call('HSET', state_key, 'epoch', epoch)
redis.call('HDEL', state_key, 'loading')
return loaded and 0 or 1
