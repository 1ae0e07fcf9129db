-- Loads documents of the registry, or deletion requests, and raises the version that counts their changes.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  documents (hash)   4  their version
-- ARGV  1  nonce of the caller   2  the version to raise to   3…  key and document in turn
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
if tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[4]) or '0') then redis.call('SET', KEYS[4], ARGV[2]) end
return 1
