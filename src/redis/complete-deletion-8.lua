-- Marks a deletion request complete: stores its document with the evidence, removes its targets, and records that its account wants a
-- callback. One step, so that a crash loses no callback. May be called again, and never reopens a completed request. The caller has already
-- copied the document to ClickHouse, so that a Redis that is emptied right afterwards comes back with what callers were answered. If
-- another worker has completed the request with its own document, that document is copied again, over the caller's.
--
-- KEYS  1  deletion requests (hash)   2  pending requests (sorted set)   3  targets of the request
--       4  present while the append-only file has to be rewritten   5  requests with a callback that is due (set)
--       6  weights of pending requests (hash)   7  pending requests by account (sorted set)   8  what ClickHouse lacks (sorted set)
-- ARGV  1  request id   2  its document   3  its member in the pending requests   4  '1' if a callback is due
-- Returns 1 when this call completed it, else 0.

if redis.call('ZREM', KEYS[2], ARGV[3]) == 0 then
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then redis.call('ZADD', KEYS[8], 4, ARGV[1]) end
  return 0
end
redis.call('ZREM', KEYS[7], ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('DEL', KEYS[3])
local weight, account = tonumber(redis.call('HGET', KEYS[6], ARGV[3]) or '0'), string.match(ARGV[3], '^%S+')
redis.call('HDEL', KEYS[6], ARGV[3])
if redis.call('HINCRBY', KEYS[6], account, 0 - weight) == 0 then redis.call('HDEL', KEYS[6], account) end
redis.call('HINCRBY', KEYS[6], '', 0 - weight)
redis.call('SET', KEYS[4], ARGV[1])
if ARGV[4] == '1' then redis.call('SADD', KEYS[5], ARGV[1]) end
return 1
