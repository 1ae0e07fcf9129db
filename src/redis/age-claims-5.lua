-- Lets a shard's claims age: moves their clock, decides which have expired, and takes those out of some buckets,
-- the next ones at each call. Kept answers of processes age by the same clock.
--
-- The clock moves here alone, by the time that has passed for the caller as well as for Redis. So a step of
-- Redis's clock ages nothing, and neither does time in which no worker runs. Nothing expires that is younger than
-- the oldest outstanding segment: the segment and its claims count by the same clock. One step, since a commit
-- between the clock and the decision could drop what an outstanding segment still needs.
--
-- KEYS
--   1  state of the shard (hash): clock_us, last_number, claim_clock_us, claim_clock_seen_us (Redis's clock at the
--      last call), claims_kept_from (a minute), claim_window_minutes, claim_cursor, answer_cursor
--   2  outstanding segments (sorted set, by number)
--   3  claims (hash of buckets)
--   4  minutes of the clock (sorted set) by the last number when it reached them, as far back as segments are
--      outstanding
--   5  answers (hash): of each process's last commit, "<sequence> <minute> <answer>"
-- ARGV
--   1  milliseconds that passed for the caller since its last call   2  that a call moves the clock by at most
--   3  minutes that claims are to be kept at least                   4  that answers are kept
--   5  buckets to look at, about
-- Returns the minutes that claims are kept, or nil when there was no commit yet.
-- Cost in commands: 9, + 2 in a new minute, + 1 for each bucket or answer in which something expired.

local state_key, segments_key, claims_key, minutes_key, answers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local passed_ms, step_ms_max = tonumber(ARGV[1]), tonumber(ARGV[2])
local window_minutes, answer_minutes, buckets_count = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local answers_count = 10
-- Claims have their minute in 2 bytes.
local minutes_max = 65535
local call = redis.call

local state = call('HMGET', state_key, 'clock_us', 'last_number', 'claim_clock_us', 'claim_clock_seen_us',
  'claim_cursor', 'answer_cursor')
if not state[1] then return nil end
local last_number = state[2] or '0'

-- 1. The clock. It starts where the last commit's clock was: by that one claims had their minutes before.

local time = call('TIME')
local time_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local clock_us = tonumber(state[3] or state[1])
local elapsed_us = time_us - tonumber(state[4] or time_us)
clock_us = clock_us + math.max(0, math.min(elapsed_us, passed_ms * 1000, step_ms_max * 1000))
local minute = math.floor(clock_us / 60000000)

if not call('ZSCORE', minutes_key, minute) then
  -- Segments above the last number are opened in this minute or later, so an earlier one has nothing more to say.
  call('ZREMRANGEBYSCORE', minutes_key, last_number, last_number)
  call('ZADD', minutes_key, last_number, minute)
end

-- 2. What is kept. A minute more than told: a claim has its minute from a clock that lags by up to a step.

local kept_from = minute - window_minutes - 1
local oldest = call('ZRANGE', segments_key, 0, 0)[1]
if oldest then
  local number = string.match(oldest, '(%d+)$')
  local opened = call('ZREVRANGEBYSCORE', minutes_key, '(' .. number, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  -- A segment from before the first of the minutes may need any claim.
  kept_from = math.min(kept_from, tonumber(opened[1] or '0'))
  if opened[1] then call('ZREMRANGEBYSCORE', minutes_key, '-inf', '(' .. opened[2]) end
else
  call('ZREMRANGEBYRANK', minutes_key, 0, -2)
end
kept_from = math.max(kept_from, minute - minutes_max)
local minutes_kept = minute - kept_from

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

local answers = call('HSCAN', answers_key, state[6] or '0', 'COUNT', answers_count)
for i = 1, #answers[2], 2 do
  local answered = tonumber(string.match(answers[2][i + 1], '^%d+ (%d+) '))
  if minute - answered > answer_minutes then call('HDEL', answers_key, answers[2][i]) end
end

call('HSET', state_key, 'claim_clock_us', string.format('%.0f', clock_us),
  'claim_clock_seen_us', string.format('%.0f', time_us), 'claims_kept_from', kept_from,
  'claim_window_minutes', minutes_kept - 1, 'claim_cursor', claims[1], 'answer_cursor', answers[1])
return minutes_kept - 1
