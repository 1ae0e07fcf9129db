-- Creates a new deployment's document, unless an interrupted first start left one.
--
-- KEYS  1  epoch   2  nonce of the loading process   3  documents (hash)   4  keys of documents to mirror (set)   5  version
-- ARGV  1  nonce of the caller   2  key of the deployment's document   3  the document
-- Returns the document that is stored now; nil when the caller may no longer load.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
redis.call('HSETNX', KEYS[3], ARGV[2], ARGV[3])
redis.call('SADD', KEYS[4], ARGV[2])
redis.call('SETNX', KEYS[5], '1')
return redis.call('HGET', KEYS[3], ARGV[2])
