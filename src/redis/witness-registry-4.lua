#!lua flags=allow-oom
-- Checks that the registry is as new as the caller has seen it, and raises its number. A registry that is older was set back: it is no
-- longer the deployment's, as if Redis had been emptied. One step, so that an older one's number is never raised until it looks new.
--
-- KEYS  1  epoch   2  witness (hash): number, and kept:<server>, the number that a ClickHouse server has
--       3  version of the documents   4  plan of a restore
-- ARGV  1  the lowest number that does not count as older   2  1 to raise it, 0 to check only
-- Returns the number as text; "old" if this call found an older one; nil when this Redis does not hold the deployment.

if not redis.call('GET', KEYS[1]) then return nil end
local number = tonumber(redis.call('HGET', KEYS[2], 'number') or '0')
if number < tonumber(ARGV[1]) then
  -- Readers look at the version first.
  redis.call('DEL', KEYS[1], KEYS[3], KEYS[4])
  return 'old'
end
if ARGV[2] == '1' then
  number = number + 1
  redis.call('HSET', KEYS[2], 'number', string.format('%.0f', number))
end
return string.format('%.0f', number)
