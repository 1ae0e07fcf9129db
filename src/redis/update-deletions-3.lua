-- Writes the progress of deletion requests, if all are pending and no other process has written since the caller read them: a round
-- that another round overtook does not know what has been found, deleted and verified since. Many to a call, since each call is a
-- sync that the requests of others wait for.
--
-- KEYS  1  deletion requests (hash)   2  pending requests (sorted set)   3  requests to mirror (set)
-- ARGV  for each: request id, its document, its member in the pending requests, and its revision: the next one
-- Returns 1 when written, else 0.

for i = 1, #ARGV, 4 do
  if not redis.call('ZSCORE', KEYS[2], ARGV[i + 2]) then return 0 end
  local kept = redis.call('HGET', KEYS[1], ARGV[i])
  if not kept or (cjson.decode(kept).revision or 0) ~= tonumber(ARGV[i + 3]) - 1 then return 0 end
end
for i = 1, #ARGV, 4 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('SADD', KEYS[3], ARGV[i])
end
return 1
