-- Ends a deletion request whose targets are lost, on an administrator's command. Its document stays.
--
-- KEYS  1  deletion requests (hash)   2  lost requests (sorted set)   3  what ClickHouse lacks (sorted set)
--       4  targets of the request, of which a restore may have found some
-- ARGV  1  request id   2  its document   3  its member in the lost requests
-- Returns 1 when this call ended it, 0 when its targets are not lost.

if redis.call('ZREM', KEYS[2], ARGV[3]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[3], 4, ARGV[1])
redis.call('DEL', KEYS[4])
return 1
