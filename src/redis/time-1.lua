-- The clock of the server that holds a shard: each server of a cluster has its own.
--
-- KEYS  1  state of the shard (hash)
-- Returns seconds and microseconds, as TIME does.

return redis.call('TIME')
