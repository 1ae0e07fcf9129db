-- Loads the references by which callers have named deletion requests.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  prefix of the keys of references
-- ARGV  1  nonce of the caller   2…  for each reference: its digest, hash of the list and request id, milliseconds left
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
for i = 2, #ARGV, 3 do redis.call('SET', KEYS[3] .. ARGV[i], ARGV[i + 1], 'PX', ARGV[i + 2]) end
return 1
