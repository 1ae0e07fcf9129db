-- Loads suppressions of an account into an emptied Redis. end-load-suppressions-3.lua follows when all accounts are loaded.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  state of all suppressions (hash)   4  the account's names (hash)
--       5  prefix of the names by root (sets)
-- ARGV  1  nonce of the caller   2  account   3  "first" if this is the account's first call   4  its users
--       5…  name, its value in the hash
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
-- What an interrupted load left may have been freed since.
if ARGV[3] == 'first' then redis.call('DEL', KEYS[4]) end
redis.call('HSET', KEYS[3], 'users:' .. ARGV[2], ARGV[4])
for i = 5, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  redis.call('HSET', KEYS[4], name, value)
  local is_root = false
  for word in string.gmatch(value, '%S+') do
    if is_root and word ~= '-' then redis.call('SADD', KEYS[5] .. word, name) end
    is_root = true
  end
end
return 1
