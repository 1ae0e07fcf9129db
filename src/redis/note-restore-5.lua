-- Records the plan of a restore: from then on no round of deletions and no move of a shard begins. In one step with the checks, since
-- between the two a round could begin, a shard be moved, or a new deployment be created in an empty Redis.
--
-- KEYS  1  lock of the failed rows   2  lock of restores   3  epoch   4  documents (hash)   5  the plan
-- ARGV  1  who holds the first lock   2  who holds the second one   3  the epoch, or empty if Redis is not loaded
--       4  key of the document that says which server has which shard   5  that document, or empty if there is none   6  the plan
-- Returns 1; 0 if a lock is lost, -1 if Redis holds another state, -2 if the shards are elsewhere.

if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[3] then return -1 end
if ARGV[3] ~= '' and (redis.call('HGET', KEYS[4], ARGV[4]) or '') ~= ARGV[5] then return -2 end
redis.call('SET', KEYS[5], ARGV[6])
return 1
