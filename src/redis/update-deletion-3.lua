-- Writes the progress of a deletion request, if it is pending and no other process has written since the caller read it: a round
-- that another round overtook does not know what has been found, deleted and verified since.
--
-- KEYS  1  deletion requests (hash)   2  pending requests (sorted set)   3  requests to mirror (set)
-- ARGV  1  request id   2  its document   3  its member in the pending requests   4  its revision: the next one
-- Returns 1 when written, else 0.

if not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return 0 end
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if not kept or (cjson.decode(kept).revision or 0) ~= tonumber(ARGV[4]) - 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[3], ARGV[1])
return 1
