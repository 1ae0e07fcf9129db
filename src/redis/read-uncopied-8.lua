#!lua flags=allow-oom
-- Reads the first of what ClickHouse lacks, with the version under which to copy it. One step: if Redis were emptied in between, documents
-- would be copied as removed, and half a change of the registry must not be copied without the other half. Allowed when Redis is full,
-- since copied lines make room.
--
-- KEYS  1  epoch   2  version of the registry   3  version of the second copies
--       4  what ClickHouse lacks (sorted set): 1 lines of the audit log, 2 changes of suppressions, 3 documents of the registry,
--          4 deletion requests. Each kind comes after those that must not be missing beside it
--       5  to 8  each kind's texts (hashes)
-- ARGV  1  how many are read, 2  the bytes after which no further one is read: of the registry all or none
-- Returns the version, that of the registry, 1 if this is everything that ClickHouse lacks, else 0, and, in turn, the names, kinds and
-- texts (empty when they were removed); nil when this Redis does not hold the deployment.

if not redis.call('GET', KEYS[1]) then return nil end
local of_registry = redis.call('GET', KEYS[2]) or '0'
local count, count_max, bytes_max = redis.call('ZCARD', KEYS[4]), tonumber(ARGV[1]), tonumber(ARGV[2])
if count == 0 then return { '0', of_registry, 1 } end
if redis.call('ZCOUNT', KEYS[4], 1, 2) < count_max then
  count_max = math.max(count_max, redis.call('ZCOUNT', KEYS[4], 1, 3))
end
local found = redis.call('ZRANGE', KEYS[4], 0, count_max - 1, 'WITHSCORES')
local time = redis.call('TIME')
-- Above the version of the registry: a load gives it one above all that were copied.
local version = string.format('%.0f', math.max(tonumber(redis.call('GET', KEYS[3]) or '0') + 1, tonumber(of_registry),
  tonumber(time[1]) * 1000000 + tonumber(time[2])))
redis.call('SET', KEYS[3], version)
local reply, bytes = { version, of_registry, 0 }, 0
for i = 1, #found, 2 do
  local kind = found[i + 1]
  if bytes >= bytes_max and not (kind == '3' and found[i - 1] == '3') then return reply end
  local text = redis.call('HGET', KEYS[4 + kind], found[i]) or ''
  bytes = bytes + #text
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = found[i], kind, text
end
if #found == 2 * count then reply[3] = 1 end
return reply
