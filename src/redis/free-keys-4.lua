-- Forgets which idempotency keys of a shard are taken, since the records of some of them are gone: ClickHouse was set back. From here
-- on workers ask its index, which has the keys of the records that are there. The open segments are sealed: a repeat of a key
-- goes to a later segment than its first record, else both would count as that segment's own. One step: a commit in between would
-- be decided by claims that are not noted as forgotten.
--
-- Segments up to the last number were accepted by the claims that are forgotten now. So they need no more of the index than before, and do
-- not wait until it has all of them. `keys_freed_to` is that number. `keys_forgotten_before` says how far keys had been forgotten before,
-- perhaps by an earlier call.
--
-- KEYS  1  state of the shard (hash)   2  claims (hash)   3  claims by minute (hash)   4  minutes of the clock (sorted set)
-- ARGV  1  epoch of the deployment   2  generation of the index
-- Returns 1; nil when this Redis is not that deployment's.

local state = redis.call('HMGET', KEYS[1], 'epoch', 'last_number', 'keys_forgotten_to')
if state[1] ~= ARGV[1] then return nil end
local last_number = state[2] or '0'
redis.call('UNLINK', KEYS[2], KEYS[2] .. '_apart', KEYS[3], KEYS[4])
redis.call('HDEL', KEYS[1], 'keys_indexed_to', 'claims_first_minute')
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 5) == 'open.' then redis.call('HDEL', KEYS[1], field) end
end
redis.call('HSET', KEYS[1], 'keys_freed_to', last_number, 'keys_forgotten_before', state[3],
  'keys_forgotten_to', last_number, 'keys_generation', ARGV[2])
return 1
