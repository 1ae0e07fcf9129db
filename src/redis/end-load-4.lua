-- Ends a load: from now on Redis holds the deployment. Refuses a caller that has lost the right to load, since what it
-- wrote may be gone, or older than what another process wrote.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  documents (hash)   4  present while the append-only file has to be rewritten
-- ARGV  1  nonce of the caller   2  epoch of the deployment   3  key of its document
--       4  "restored" if the append-only file may still hold deleted data, else empty
-- Returns 1; nil when this Redis does not hold what the caller loaded.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
local document = redis.call('HGET', KEYS[3], ARGV[3])
if not document or cjson.decode(document).epoch ~= ARGV[2] then return nil end
if ARGV[4] == 'restored' then redis.call('SET', KEYS[4], ARGV[1]) end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[2])
return 1
