-- Removes documents from the list of documents that ClickHouse lacks, unless the registry has changed since they were read:
-- then they are copied again.
--
-- KEYS  1  version   2  keys of documents to mirror (set)
-- ARGV  1  version at which the caller read   2… the documents' keys
-- Returns 1 if removed, else 0.

if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[1] then return 0 end
for i = 2, #ARGV do redis.call('SREM', KEYS[2], ARGV[i]) end
return 1
