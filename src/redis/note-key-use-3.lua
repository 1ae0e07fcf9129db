-- Records when a key was used, as a document of the registry, unless that is recorded already. It leaves the registry's version as it is,
-- since no reader has to see the change at once, and each new version makes all API processes read everything.
--
-- KEYS  1  epoch   2  documents (hash)   3  what ClickHouse lacks (sorted set)
-- ARGV  1  key of the document   2  the document; within a minute its text is the same
-- Returns 1 if it is recorded now, else 0. Cost in commands: 2, once a minute and key 4.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HGET', KEYS[2], ARGV[1]) == ARGV[2] then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[3], 3, ARGV[1])
return 1
