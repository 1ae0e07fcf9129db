-- The clock of the server that has a key: each server of a cluster has its own.
--
-- KEYS  1  the key
-- Returns seconds and microseconds, as TIME does.

return redis.call('TIME')
