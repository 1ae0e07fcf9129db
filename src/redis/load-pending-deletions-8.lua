-- Loads the lists of pending and lost deletion requests, and the targets of pending ones.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  pending requests (sorted set)   4  lost requests (sorted set)
--       5  requests whose targets ClickHouse does not have yet (set)   6  prefix of the keys of targets
--       7  weights of pending requests (hash)   8  pending requests by account (sorted set)
-- ARGV  1  nonce of the caller
--       2…  for each request: id, member, place among all of them, "pending", "unkept" (pending, and a worker checks
--           whether all its targets are there) or "lost", its targets, and their weight
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
for i = 2, #ARGV, 6 do
  local id, member, place, kind, targets = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  if kind == 'lost' then
    redis.call('ZADD', KEYS[4], place, member)
  else
    local weight, account = ARGV[i + 5], string.match(member, '^%S+')
    redis.call('ZADD', KEYS[3], place, member)
    redis.call('ZADD', KEYS[8], 0, member)
    redis.call('HSET', KEYS[7], member, weight)
    redis.call('HINCRBY', KEYS[7], account, weight)
    redis.call('HINCRBY', KEYS[7], '', weight)
    redis.call('SET', KEYS[6] .. id, targets)
    if kind == 'unkept' then redis.call('SADD', KEYS[5], id) end
  end
end
return 1
