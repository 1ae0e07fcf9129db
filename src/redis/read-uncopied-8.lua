#!lua flags=allow-oom
-- Reads the first of what ClickHouse lacks of each kind, with the version under which to copy it. One step: if Redis were emptied in
-- between, documents would be copied as removed, and half a change of the registry must not be copied without the other half. Until all
-- lines are read, no other kind is: ClickHouse must have no change without its line. Allowed when Redis is full, since copied lines make
-- room.
--
-- KEYS  1  epoch   2  version of the registry   3  version of the second copies
--       4  what ClickHouse lacks (sorted set): 1 lines of the audit log, 2 changes of suppressions, 3 documents of the registry,
--          4 deletion requests
--       5 to 8  each kind's texts (hashes)
-- ARGV  1  how many of a kind are read, 2  the bytes after which no further one is read: of the registry all or none
--       3  the kind that is read after the lines; 0: all
-- Returns the version, that of the registry, 1 if this is all that ClickHouse lacks of these kinds, else 0, and, in turn, names, kinds and
-- texts (empty when they were removed); nil when this Redis does not hold the deployment.

if not redis.call('GET', KEYS[1]) then return nil end
local of_registry = redis.call('GET', KEYS[2]) or '0'
if redis.call('ZCARD', KEYS[4]) == 0 then return { '0', of_registry, 1 } end
local time = redis.call('TIME')
-- Above the version of the registry: a load gives it one above all that were copied.
local version = string.format('%.0f', math.max(tonumber(redis.call('GET', KEYS[3]) or '0') + 1, tonumber(of_registry) + 1,
  tonumber(time[1]) * 1000000 + tonumber(time[2])))
redis.call('SET', KEYS[3], version)
local reply = { version, of_registry, 0 }

-- Adds the first of a kind to the reply; returns whether these are all of it.
local function read(kind)
  local is_whole = kind == 3
  local names = redis.call('ZRANGEBYSCORE', KEYS[4], kind, kind, 'LIMIT', 0, is_whole and -1 or ARGV[1])
  local bytes = 0
  for _, name in ipairs(names) do
    if bytes >= tonumber(ARGV[2]) and not is_whole then return false end
    local text = redis.call('HGET', KEYS[4 + kind], name) or ''
    bytes = bytes + #text
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = name, tostring(kind), text
  end
  return #names == redis.call('ZCOUNT', KEYS[4], kind, kind)
end

local is_all = read(1)
if is_all then
  for kind = 2, 4 do
    if ARGV[3] == '0' or ARGV[3] == tostring(kind) then is_all = read(kind) and is_all end
  end
end
if is_all then reply[3] = 1 end
return reply
