-- Writes the progress of a deletion request, as long as it is pending. Nobody takes back that its targets are kept or
-- that it is verified: a round that another one overtook knows nothing of it, and the targets that it needs may be gone
-- by then.
--
-- KEYS  1  deletion requests (hash)   2  pending requests (sorted set)   3  requests to mirror (set)
-- ARGV  1  request id   2  its document   3  its member in the pending requests
-- Returns 1 when written, else 0.

if not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return 0 end
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept then
  local now, wanted = cjson.decode(kept), cjson.decode(ARGV[2])
  if now.verified_at and not wanted.verified_at then return 0 end
  if now.targets_kept and not wanted.targets_kept then return 0 end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[3], ARGV[1])
return 1
