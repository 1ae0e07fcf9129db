-- Loads suppressions of an account into an emptied Redis. end-load-suppressions-3.lua follows when all accounts are loaded.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  state of all suppressions (hash)   4  the account's names (hash)
--       5  prefix of the names by root (sets)
-- ARGV  1  nonce of the caller   2  account   3  "first" if this is the account's first call   4  its users
--       5…  name, its value in the hash
-- Returns 1; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
-- What an interrupted load left may have been freed since.
local joined_field = 'joined:' .. ARGV[2]
if ARGV[3] == 'first' then
  redis.call('UNLINK', KEYS[4])
  redis.call('HDEL', KEYS[3], joined_field)
end
redis.call('HSET', KEYS[3], 'users:' .. ARGV[2], ARGV[4])
local joined = 0
for i = 5, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  redis.call('HSET', KEYS[4], name, value)
  local is_root, is_joined = false, true
  for word in string.gmatch(value, '%S+') do
    if is_root and word ~= '-' then redis.call('SADD', KEYS[5] .. word, name) end
    if is_root and string.byte(word) ~= 43 then is_joined = false end
    is_root = true
  end
  if is_joined then joined = joined + 1 end
end
-- Users who were joined by strangers take none of the account's room (change-suppressions-6.lua).
if joined > 0 then redis.call('HINCRBY', KEYS[3], joined_field, joined) end
return 1
