#!lua flags=allow-oom
-- Forgets lines of the audit log that ClickHouse has. Another process may have forgotten some of them. Allowed when Redis is full, since
-- it makes room.
--
-- KEYS  1  lines that ClickHouse does not have yet (hash)   2  how many of them each account has (hash)
-- ARGV  name and account of each line
-- Returns 1. Cost in commands: 1 for each line, + up to 2 for each account, + 2.

local forgotten = {}
for at = 1, #ARGV, 2 do
  if redis.call('HDEL', KEYS[1], ARGV[at]) == 1 then
    forgotten[ARGV[at + 1]] = (forgotten[ARGV[at + 1]] or 0) + 1
  end
end
for account, lines in pairs(forgotten) do
  if redis.call('HINCRBY', KEYS[2], account, -lines) <= 0 then redis.call('HDEL', KEYS[2], account) end
end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('DEL', KEYS[2]) end
return 1
