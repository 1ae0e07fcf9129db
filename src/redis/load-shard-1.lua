-- Makes a shard ready to take commits for a deployment. Sets its epoch last, and never lets its numbers fall below what
-- ClickHouse has seen, since a repeated number would be a repeated token. Records that the keys of all earlier segments are
-- forgotten, so workers ask the index. May be called again.
--
-- KEYS  1  state of the shard (hash)
-- ARGV  1  epoch of the deployment   2  highest number that was given before   3  buckets for claims: a power of two
--       4  nonce with which the caller reserved its numbers   5  version of the suppressions   6  version of the registry
--       7  number of the witness   8  the highest segment that ClickHouse had by then   9  how many records were ever stored
-- Returns 1 if this call loaded the shard, 0 if it was loaded before; nil if the numbers that the caller reserved are
-- gone: Redis was emptied, or another load has reserved numbers since.

local state_key, epoch, number_floor, bucket_count = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

local loaded = redis.call('HGET', state_key, 'epoch') == epoch
if not loaded and redis.call('HGET', state_key, 'loading') ~= ARGV[4] then return nil end
local last_number = tonumber(redis.call('HGET', state_key, 'last_number') or '0')
if number_floor > last_number then
  redis.call('HSET', state_key, 'last_number', string.format('%.0f', number_floor))
end
redis.call('HSETNX', state_key, 'claim_bucket_count', bucket_count)
if not loaded then
  redis.call('HSET', state_key, 'keys_forgotten_to', string.format('%.0f', number_floor), 'load', ARGV[4])
  -- What the ledger had not written yet is lost.
  redis.call('HDEL', state_key, 'ledger_since')
  -- A Redis that was set aside still has answers of processes. Which of their commits it lacks is known already, and must not count as a
  -- new loss.
  redis.call('DEL', string.sub(state_key, 1, -6) .. 'answers')
end
-- API processes may have kept older suppressions in memory while Redis was empty.
if tonumber(ARGV[5]) > tonumber(redis.call('HGET', state_key, 'suppression_version') or '0') then
  redis.call('HSET', state_key, 'suppression_version', ARGV[5])
end
-- They may also know environments that the loaded registry does not have.
if tonumber(ARGV[6]) > tonumber(redis.call('HGET', state_key, 'registry_version') or '0') then
  redis.call('HSET', state_key, 'registry_version', ARGV[6])
end
if tonumber(ARGV[7]) > tonumber(redis.call('HGET', state_key, 'witness') or '0') then
  redis.call('HSET', state_key, 'witness', ARGV[7])
end
-- The count continues from what ClickHouse has seen, so that later copies compare with earlier ones (operations/recover.ts).
for field, seen in pairs({ stored_to = ARGV[8], stored_records = ARGV[9] }) do
  if tonumber(seen) > tonumber(redis.call('HGET', state_key, field) or '0') then redis.call('HSET', state_key, field, seen) end
end
redis.call('HSET', state_key, 'epoch', epoch)
redis.call('HDEL', state_key, 'loading')
return loaded and 0 or 1
