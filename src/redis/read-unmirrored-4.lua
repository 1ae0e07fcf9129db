-- Reads documents that ClickHouse lacks, with the version under which to copy them. One step: if Redis were emptied in between, the
-- documents would be copied as removed.
--
-- KEYS  1  epoch   2  version   3  keys of documents to mirror (set)   4  documents (hash)
-- ARGV  1  'raise' if each copy needs a version of its own, else 'keep'
--       2  'all' for every document of the set, or the bytes after which no further one is read   3…  then the keys to read
-- Returns the version and, in turn, the first of the keys and their documents (empty when they were removed); nil when this Redis does
-- not hold the deployment.

if not redis.call('GET', KEYS[1]) then return nil end
local keys, bytes_max = { unpack(ARGV, 3) }, tonumber(ARGV[2])
if not bytes_max then keys, bytes_max = redis.call('SMEMBERS', KEYS[3]), math.huge end
local version
if ARGV[1] == 'raise' and #keys > 0 then
  version = tostring(redis.call('INCR', KEYS[2]))
else
  version = redis.call('GET', KEYS[2]) or '0'
end
local reply, bytes = { version }, 0
for _, key in ipairs(keys) do
  if bytes >= bytes_max then break end
  local document = redis.call('HGET', KEYS[4], key) or ''
  bytes = bytes + #document
  reply[#reply + 1] = key
  reply[#reply + 1] = document
end
return reply
