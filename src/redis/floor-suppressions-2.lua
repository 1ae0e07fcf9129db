-- Raises the version of the suppressions to one that a shard knows. On a cluster the registry's master may lose its last second, and with
-- it a version that the master of a shard still has. API processes could then never reach that version.
--
-- KEYS  1  epoch   2  state of all suppressions (hash)
-- ARGV  1  epoch of the deployment   2  version that a shard knows
-- Returns 1; nil when this is another deployment's Redis.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return nil end
if tonumber(ARGV[2]) > tonumber(redis.call('HGET', KEYS[2], 'version') or '0') then
  redis.call('HSET', KEYS[2], 'version', ARGV[2])
end
return 1
