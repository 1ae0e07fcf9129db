-- Writes the progress of deletion requests, if all are pending and no other process has written since the caller read them: a round
-- that another one has overtaken does not know what was found, deleted and verified since. Many in one call, since each call costs a
-- sync, for which other requests wait. A request is in the list of pending requests or in that of hidden ones, as its document says.
--
-- KEYS  1  deletion requests (hash)   2  pending requests, 3  hidden requests (sorted sets by time)
--       4  pending requests by account (sorted set)   5  what ClickHouse lacks (sorted set)
-- ARGV  for each request: its id, its document, its member in the lists, its next revision, and its state: 'hidden' if its users are
--       hidden; 'erased' if they were, so that its account need not wait for it while it completes; else empty
-- Returns 1 when written, else 0.

for i = 1, #ARGV, 5 do
  local member = ARGV[i + 2]
  if not redis.call('ZSCORE', KEYS[2], member) and not redis.call('ZSCORE', KEYS[3], member) then return 0 end
  local kept = redis.call('HGET', KEYS[1], ARGV[i])
  if not kept or (cjson.decode(kept).revision or 0) ~= tonumber(ARGV[i + 3]) - 1 then return 0 end
end
for i = 1, #ARGV, 5 do
  local member, kind = ARGV[i + 2], ARGV[i + 4]
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('ZADD', KEYS[5], 4, ARGV[i])
  local from, to = KEYS[2], KEYS[3]
  if kind ~= 'hidden' then from, to = to, from end
  local place = redis.call('ZSCORE', from, member)
  if place then
    redis.call('ZADD', to, place, member)
    redis.call('ZREM', from, member)
  end
  if kind == '' then redis.call('ZADD', KEYS[4], 0, member) else redis.call('ZREM', KEYS[4], member) end
end
return 1
