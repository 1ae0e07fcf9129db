-- Deletes a key if it still has the value that the caller knows: another process may have set another one since.
--
-- KEYS  1  the key
-- ARGV  1  the value
-- Returns 1 when deleted, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
