-- Reads documents that ClickHouse lacks, with the version under which to copy them. One step: if Redis were emptied in between, the
-- documents would be copied as removed.
--
-- KEYS  1  epoch   2  version   3  keys of documents to mirror (set)   4  documents (hash)
-- ARGV  1  'raise' if each copy needs a version of its own, else 'keep'   2  bytes after which no further document is read
--       3…  keys of documents that were in the set
-- Returns the version and, in turn, the first of the keys and their documents (empty when they were removed); nil when this Redis does
-- not hold the deployment.

if not redis.call('GET', KEYS[1]) then return nil end
local version
if ARGV[1] == 'raise' and #ARGV > 2 then
  version = tostring(redis.call('INCR', KEYS[2]))
else
  version = redis.call('GET', KEYS[2]) or '0'
end
local reply, bytes = { version }, 0
for i = 3, #ARGV do
  if bytes >= tonumber(ARGV[2]) then break end
  local document = redis.call('HGET', KEYS[4], ARGV[i]) or ''
  bytes = bytes + #document
  reply[#reply + 1] = ARGV[i]
  reply[#reply + 1] = document
end
return reply
