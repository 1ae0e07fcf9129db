-- Reads the documents that ClickHouse lacks, with the version under which to copy them. One step: if Redis were emptied in
-- between, the documents would be copied as removed.
--
-- KEYS  1  epoch   2  version   3  keys of documents to mirror (set)   4  documents (hash)
-- ARGV  1  'raise' if each copy needs a version of its own, else 'keep'
-- Returns the version and, in turn, each key and its document (empty when it was removed); only the version when
-- there is nothing to copy; nil when this Redis does not hold the deployment.

if not redis.call('GET', KEYS[1]) then return nil end
local keys = redis.call('SMEMBERS', KEYS[3])
local version
if ARGV[1] == 'raise' and #keys > 0 then
  version = tostring(redis.call('INCR', KEYS[2]))
else
  version = redis.call('GET', KEYS[2]) or '0'
end
local reply = { version }
for _, key in ipairs(keys) do
  reply[#reply + 1] = key
  reply[#reply + 1] = redis.call('HGET', KEYS[4], key) or ''
end
return reply
