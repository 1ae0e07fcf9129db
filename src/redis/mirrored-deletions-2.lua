-- Removes deletion requests from the list of requests that ClickHouse lacks, unless they have changed since they were read:
-- then they are copied again.
--
-- KEYS  1  requests to mirror (set)   2  deletion requests (hash)
-- ARGV  request id and SHA-1 of the document that was copied, in turn

for i = 1, #ARGV, 2 do
  local document = redis.call('HGET', KEYS[2], ARGV[i])
  if document and redis.sha1hex(document) == ARGV[i + 1] then redis.call('SREM', KEYS[1], ARGV[i]) end
end
return 1
