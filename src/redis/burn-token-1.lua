#!lua flags=allow-oom
-- Records how many of a segment's deduplication tokens are burnt: ClickHouse knows them without having the rows, so they can no longer
-- store the segment. Allowed when Redis is full: only after this can the segment be stored, which makes room.
--
-- KEYS  1  burnt tokens of the shard (hash)
-- ARGV  1  the segment's member   2  how many
-- Returns 1.

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
