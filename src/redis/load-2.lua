-- Carries out commands of the process that loads the deployment into an emptied Redis, unless the process has lost the right to load: Redis
-- may have been emptied again, or another load may have begun. One step, so that a caller without the right writes nothing.
--
-- KEYS  1  epoch   2  nonce of the loading process. All keys of the commands are on the same server, since they are the registry's
-- ARGV  1  nonce of the caller   2…  for each command: the number of its words, then the words
-- Returns what the last command replied, 1 without commands; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
local at, reply = 2, 1
while ARGV[at] do
  local last = at + tonumber(ARGV[at])
  reply = redis.call(unpack(ARGV, at + 1, last))
  at = last + 1
end
return reply
