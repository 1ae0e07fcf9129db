-- Forgets a shard's claims when none was made within the longest window. In one step: a claim made meanwhile
-- is counted in the same script that makes it.
--
-- KEYS  1  claims (hash of buckets)   2  counts of claims (hash by minute; old ones were taken out before)

if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('UNLINK', KEYS[1]) end
