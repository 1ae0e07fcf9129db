#!lua flags=allow-oom
-- Notes how many tokens of a segment ClickHouse has burnt. Allowed when Redis is full: only then can the segment be stored, which
-- makes room.
--
-- KEYS  1  burnt tokens of the shard (hash)
-- ARGV  1  the segment's member   2  how many
-- Returns 1.

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
