-- Counts in a shard's ledger what needs no commit: records that were refused or mended. Nothing relies on these counts, so those for which
-- there is no room while ClickHouse is away are dropped.
--
-- KEYS  1  state of the shard (hash)   2  minutes of its ledger (set)
-- ARGV  1  epoch of the deployment     2  fields that a minute may have
--       3…  field, count …
-- Cost in commands: 4, + 1 for each field.

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return end
local time = redis.call('TIME')
-- As in commit-3.lua: this clock does not go back to a minute that was removed from here.
local clock_us = tonumber(redis.call('HGET', KEYS[1], 'clock_us') or '0')
local now_us = math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), clock_us)
local minute = math.floor(now_us / 60000000)
local key = string.format('%sledger:%d', string.sub(KEYS[1], 1, -6), minute)
if redis.call('HLEN', key) >= tonumber(ARGV[2]) then return end
for i = 3, #ARGV, 2 do redis.call('HINCRBY', key, ARGV[i], ARGV[i + 1]) end
redis.call('SADD', KEYS[2], minute)
