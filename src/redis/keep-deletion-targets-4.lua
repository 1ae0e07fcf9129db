-- Records that ClickHouse has the targets of a pending deletion request, and changes nothing else, since the request may have
-- progressed further than the caller knows. The document is edited as text: cjson would write empty lists as objects.
--
-- KEYS  1  deletion requests (hash)   2  pending requests (sorted set)   3  what ClickHouse lacks (sorted set)
--       4  requests whose targets ClickHouse does not have yet (set)
-- ARGV  1  request id   2  its member in the pending requests
-- Returns 1 when recorded, else 0.

redis.call('SREM', KEYS[4], ARGV[1])
local document = redis.call('HGET', KEYS[1], ARGV[1])
if not document or not redis.call('ZSCORE', KEYS[2], ARGV[2]) then return 0 end
if not string.find(document, '"targets_kept":true', 1, true) then
  redis.call('HSET', KEYS[1], ARGV[1], '{"targets_kept":true,' .. string.sub(document, 2))
end
redis.call('ZADD', KEYS[3], 4, ARGV[1])
return 1
