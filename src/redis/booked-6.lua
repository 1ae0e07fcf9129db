-- Removes from a shard's ledger what ClickHouse has of a finished minute. What was added since the caller read it stays. Keeps two sums:
-- accepted records by minute for a few days, which reveal that a ClickHouse was set back, and for ever the number of records that were
-- refused, mended or skipped.
--
-- KEYS  1  state of the shard (hash)   2  minutes of its ledger (set)   3  the minute's entries (hash)   4  sums of its day (hash)
--       5  sums for good (hash)        6  the minute's log
-- ARGV  1  epoch of the deployment      2  the minute, since 1970        3  lifetime of the sums in ms
--       4  bytes of the log that ClickHouse has, or 0    5  accepted records in it    6…  field, value …
-- Returns 1; nil when this Redis is not that deployment's. Cost in commands: 10, + 3 for each field.

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return nil end
for i = 6, #ARGV, 2 do
  if redis.call('HGET', KEYS[3], ARGV[i]) == ARGV[i + 1] then
    redis.call('HDEL', KEYS[3], ARGV[i])
    local term = string.match(ARGV[i], '^%S+ %S+ (%S+)')
    if term ~= 'rejected' and term ~= 'late_repeats' then redis.call('HINCRBY', KEYS[5], ARGV[i], ARGV[i + 1]) end
  end
end
if tonumber(ARGV[4]) > 0 and redis.call('STRLEN', KEYS[6]) == tonumber(ARGV[4]) then
  redis.call('UNLINK', KEYS[6])
  redis.call('HINCRBY', KEYS[4], ARGV[2], ARGV[5])
  redis.call('PEXPIRE', KEYS[4], ARGV[3])
end
if redis.call('EXISTS', KEYS[3], KEYS[6]) == 0 then redis.call('SREM', KEYS[2], ARGV[2]) end
-- The clock must not go back into this minute.
local end_us = (tonumber(ARGV[2]) + 1) * 60000000
if tonumber(redis.call('HGET', KEYS[1], 'clock_us') or '0') < end_us then
  redis.call('HSET', KEYS[1], 'clock_us', string.format('%.0f', end_us))
end
return 1
