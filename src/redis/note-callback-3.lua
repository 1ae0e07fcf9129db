-- Records an attempt at the callback of a complete deletion request, unless another process has recorded one since it was read.
--
-- KEYS  1  deletion requests (hash)   2  what ClickHouse lacks (sorted set)   3  requests with a callback that is due (set)
-- ARGV  1  request id   2  SHA-1 of its document as it was read   3  its document   4  '1' if no further try follows
-- Returns 1 when recorded, else 0.

local document = redis.call('HGET', KEYS[1], ARGV[1])
if not document or redis.sha1hex(document) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[2], 4, ARGV[1])
if ARGV[4] == '1' then redis.call('SREM', KEYS[3], ARGV[1]) end
return 1
