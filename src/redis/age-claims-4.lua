#!lua flags=allow-oom
-- Lets a shard's claims age: moves their clock, decides which claims have expired, and removes those from some buckets;
-- each call continues with the next buckets. Kept answers of processes age by the same clock. Allowed when Redis is full, since what has
-- expired makes room.
--
-- Only this script moves the clock, by the time that has passed for both the caller and Redis. So claims age neither when
-- Redis's clock jumps nor while no worker runs. A claim never expires before its segment is stored and its key is in the
-- index (clickhouse/key-index.ts); segments and claims count by the same clock. One step, since a commit between the clock
-- and the decision could drop what a segment still needs, and since a worker that stores a later segment must know that
-- keys were forgotten.
--
-- KEYS
--   1  state of the shard (hash): clock_us, last_number, claim_clock_us, claim_clock_seen_us (Redis's clock at the
--      last call), claims_kept_from (a minute), claim_window_minutes, claim_cursor, answer_cursor, claims_first_minute (no
--      claim is older), keys_indexed_to (a number: the keys of segments up to it are in the index), keys_forgotten_to (a
--      number: keys of segments up to it may be forgotten; 0 if none ever was), keys_forgotten_s (Redis's clock then),
--      keys_generation (of the index), receipts_minute (when receipts were last asked for)
--   2  claims (hash of buckets)
--   3  minutes of the clock of claims (sorted set, scored by the last segment number when the clock reached the minute), as far
--      back as the index lacks segments
--   4  answers (hash): "<sequence> <minute> <answer>" of each process's last commit
-- ARGV
--   1  milliseconds that passed for the caller since its last call   2  milliseconds that a call may move the clock at most
--   3  minutes that claims must be kept at least                     4  minutes that answers are kept
--   5  about how many buckets to look at                             6  minutes of segments that the index may lack
-- Returns the minutes that claims are kept, and 1 if more segments have to be indexed, else 0; nil when there was no
-- commit yet. Cost in commands: 11, + 2 in a new minute, + 1 for each bucket or answer in which something expired.

local state_key, claims_key, minutes_key, answers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local passed_ms, step_ms_max = tonumber(ARGV[1]), tonumber(ARGV[2])
local window_minutes, answer_minutes, buckets_count = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local unindexed_minutes_max = tonumber(ARGV[6])
local answers_count = 10
-- More than an environment may add in a second.
local apart_count = 10000
-- A claim has its minute in 2 bytes.
local minutes_max = 65535
local call = redis.call

local state = call('HMGET', state_key, 'clock_us', 'last_number', 'claim_clock_us', 'claim_clock_seen_us',
  'claim_cursor', 'answer_cursor', 'keys_indexed_to', 'keys_forgotten_to', 'claims_first_minute', 'keys_forgotten_s',
  'keys_generation', 'receipts_minute')
if not state[1] then return nil end
local last_number = state[2] or '0'
local indexed_to = state[7] or '0'
local forgotten_to = state[8]
local forgotten_s = state[10]
if forgotten_s == '' then forgotten_s = false end

-- 1. The clock. It starts at the last commit's clock.

local time = call('TIME')
local time_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local clock_us = tonumber(state[3] or state[1])
local first_minute = tonumber(state[9] or math.floor(clock_us / 60000000))
local elapsed_us = time_us - tonumber(state[4] or time_us)
clock_us = clock_us + math.max(0, math.min(elapsed_us, passed_ms * 1000, step_ms_max * 1000))
local minute = math.floor(clock_us / 60000000)

if not call('ZSCORE', minutes_key, minute) then
  -- Segments above the last number are opened in this minute or later, so earlier minutes with the same number are dropped.
  call('ZREMRANGEBYSCORE', minutes_key, last_number, last_number)
  call('ZADD', minutes_key, last_number, minute)
end

-- 2. What is kept: a minute more than asked, since a claim has its minute from a clock that lags by up to a step.

local wanted_from = minute - window_minutes - 1
-- All segments that the index lacks were opened in this minute or later. If the first of them is from before the first known
-- minute, any claim may be needed.
local opened = call('ZREVRANGEBYSCORE', minutes_key, indexed_to, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
local unindexed_from = tonumber(opened[1] or '0')
if opened[1] then call('ZREMRANGEBYSCORE', minutes_key, '-inf', '(' .. opened[2]) end
local kept_from = math.max(math.min(wanted_from, unindexed_from), minute - minutes_max)
local minutes_kept = minute - kept_from

if call('EXISTS', claims_key) == 0 then first_minute = minute end
if kept_from > first_minute and tonumber(forgotten_to) < tonumber(indexed_to) then forgotten_to = indexed_to end
local forgot = tonumber(forgotten_to) > 0
if forgot and not forgotten_s then forgotten_s = time[1] end

local wants_index = wanted_from > first_minute and wanted_from > unindexed_from
if forgot then
  wants_index = wants_index or minute - unindexed_from > unindexed_minutes_max
    or tonumber(indexed_to) < tonumber(forgotten_to) or not state[11]
end
-- Receipts have to read all rows that are not indexed. So for a day after the last request for receipts, segments are indexed each minute.
if minute - tonumber(state[12] or '-1440') < 1440 then wants_index = wants_index or minute - unindexed_from > 1 end

-- 3. What has expired.

local claims = call('HSCAN', claims_key, state[5] or '0', 'COUNT', buckets_count)
for i = 1, #claims[2], 2 do
  local field, entries, first = claims[2][i], claims[2][i + 1], 1
  while first < #entries and (minute - struct.unpack('>I2', entries, first)) % 65536 > minutes_kept do
    first = first + 16
  end
  if first > #entries then
    call('HDEL', claims_key, field)
  elseif first > 1 then
    call('HSET', claims_key, field, string.sub(entries, first))
  end
end

-- Claims that are apart from their bucket (commit-3.lua).
local apart_key = claims_key .. '_apart'
local expired = call('ZCOUNT', apart_key, '-inf', string.format('(%.0f', kept_from * 256))
if expired > 0 then call('ZREMRANGEBYRANK', apart_key, 0, math.min(expired, apart_count) - 1) end

local answers = call('HSCAN', answers_key, state[6] or '0', 'COUNT', answers_count)
for i = 1, #answers[2], 2 do
  local answered = tonumber(string.match(answers[2][i + 1], '^%d+ (%d+) '))
  if minute - answered > answer_minutes then call('HDEL', answers_key, answers[2][i]) end
end

call('HSET', state_key, 'claim_clock_us', string.format('%.0f', clock_us),
  'claim_clock_seen_us', string.format('%.0f', time_us), 'claims_kept_from', kept_from,
  'claim_window_minutes', minutes_kept - 1, 'claim_cursor', claims[1], 'answer_cursor', answers[1],
  'claims_first_minute', first_minute, 'keys_forgotten_to', forgotten_to, 'keys_forgotten_s', forgotten_s or '')
return { minutes_kept - 1, wants_index and 1 or 0 }
