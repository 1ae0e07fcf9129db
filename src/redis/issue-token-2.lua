-- Stores a token's hash with what it stands for, and ends the oldest ones of its environment above a bound,
-- so that minting tokens cannot fill Redis.
--
-- KEYS  1  the token   2  tokens of the environment (list, newest first)
-- ARGV  1  what it stands for   2  lifetime in ms   3  live tokens an environment may have
-- Returns 1.

redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('LPUSH', KEYS[2], KEYS[1])
for _, old in ipairs(redis.call('LRANGE', KEYS[2], ARGV[3], -1)) do redis.call('DEL', old) end
redis.call('LTRIM', KEYS[2], 0, ARGV[3] - 1)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
