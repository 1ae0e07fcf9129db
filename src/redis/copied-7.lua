#!lua flags=allow-oom
-- Removes from what ClickHouse lacks what it has now, unless that has changed since it was read: then it is copied again. Documents of the
-- registry stay after any change of it: one that was changed back looks as it was read, but another process may have copied it in between.
-- The other kinds never become what they were. Copied lines and changes of suppressions are kept no longer. Allowed when Redis is full,
-- since it makes room.
--
-- KEYS  1  version of the registry   2  what ClickHouse lacks (sorted set)
--       3  to 6  the texts of its kinds (hashes), as in read-uncopied-8.lua
--       7  how many waiting lines of the audit log each account has (hash)
-- ARGV  1  version of the registry when the caller read   2…  name and SHA-1 of the text that was copied, in turn
-- Returns 1.

local is_same = (redis.call('GET', KEYS[1]) or '0') == ARGV[1]
for i = 2, #ARGV, 2 do
  local kind = redis.call('ZSCORE', KEYS[2], ARGV[i])
  local text = kind and redis.call('HGET', KEYS[2 + kind], ARGV[i])
  if kind and (is_same or kind ~= '3') and redis.sha1hex(text or '') == ARGV[i + 1] then
    redis.call('ZREM', KEYS[2], ARGV[i])
    if kind <= '2' then redis.call('HDEL', KEYS[2 + kind], ARGV[i]) end
    local account = kind == '1' and (string.match(ARGV[i], '^%S+ %S+ (.*)$') or '')
    if account and redis.call('HINCRBY', KEYS[7], account, -1) <= 0 then redis.call('HDEL', KEYS[7], account) end
  end
end
return 1
