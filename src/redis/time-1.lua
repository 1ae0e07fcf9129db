-- The clock of the server that holds a shard: of a cluster's servers each has its own.
--
-- KEYS  1  state of the shard (hash)
-- Returns seconds and microseconds, as TIME does.

return redis.call('TIME')
