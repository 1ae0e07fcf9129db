-- Says which idempotency keys of an environment Redis remembers, for receipts, and where their records can be. One step: a key is
-- claimed in the step that appends its record, so a segment that is not outstanding here is stored. Counts the keys towards what the
-- environment may ask in a second, and records that receipts are wanted: workers then keep the index of keys up to date (age-claims-4.lua).
--
-- KEYS
--   1  state of the shard (hash)   2  outstanding segments (sorted set)   3  claims (hash of buckets, see commit-3.lua)
--   4  minutes of the clock of claims (sorted set, scored by the last segment number when the clock reached the minute)
--   5  keys that the environment asked about in this second; it expires
-- ARGV
--   1  epoch of the deployment   2  13 bytes of each event id, at most 1000 of them   3  keys that may be asked about in a second
-- Returns nil when this Redis is not that deployment's; the milliseconds to wait when there is no room; else a list:
--   1  4 hexadecimal digits for each key: the minutes since it was claimed, plus 1; 0 if it is not claimed
--   2  an age: the segments of older claims are all stored
--   3  an age: the keys of older claims are all in the index
--   4  the segments of the other claims are above this number   5  and up to this one
--   6  the index has, or is being given, the keys of segments up to this number
-- Cost in commands: 9, + 2 log2 of the minutes, + 1 for each key that may be apart from its bucket; for a thousand keys 1 ms.

local state_key, segments_key, claims_key, minutes_key, asked_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local epoch, ids, asked_max = ARGV[1], ARGV[2], tonumber(ARGV[3])
local id_bytes, entry_minute_bytes, age_max = 13, 2, 65534
local call, unpack_struct, pack_struct = redis.call, struct.unpack, struct.pack

local state = call('HMGET', state_key, 'epoch', 'claim_bucket_count', 'claim_clock_us', 'keys_forgotten_to', 'receipts_minute',
  'keys_indexed_to')
if state[1] ~= epoch then return nil end
local indexed_to = state[6] or '0'
if tonumber(state[4] or '0') > tonumber(indexed_to) then indexed_to = state[4] end
local count = #ids / id_bytes

local asked = call('INCRBY', asked_key, count)
-- LT: a second that began before Redis's clock was set back does not last longer because of that.
call('PEXPIRE', asked_key, 1000, 'LT')
if asked > asked_max then
  call('DECRBY', asked_key, count)
  return math.max(call('PTTL', asked_key), 1)
end

-- No commit was made yet.
if not state[3] or not state[2] then return { string.rep('0000', count), '-1', '-1', '0', '0', indexed_to } end
local minute = math.floor(tonumber(state[3]) / 60000000)
if state[5] ~= tostring(minute) then call('HSET', state_key, 'receipts_minute', minute) end

local ids_a_bucket = 16777216 / tonumber(state[2])
local fields, bucket_of_field, bucket_of_id = {}, {}, {}
for i = 1, count do
  local id_prefix = unpack_struct('>I3', ids, (i - 1) * id_bytes + 1)
  local field = pack_struct('>I3', id_prefix - id_prefix % ids_a_bucket)
  local bucket = bucket_of_field[field]
  if not bucket then
    bucket = #fields + 1
    fields[bucket], bucket_of_field[field] = field, bucket
  end
  bucket_of_id[i] = bucket
end
local buckets = call('HMGET', claims_key, unpack(fields))

-- The age up to which claims may have segments above this number. The segments of all older claims are up to it.
local function age_up_to(number)
  local reached = call('ZREVRANGEBYSCORE', minutes_key, number, '-inf', 'LIMIT', 0, 1)[1]
  return reached and minute - tonumber(reached) or 65536
end
local indexed_age = age_up_to(state[6] or '0')

local ages, oldest_age, youngest_age = {}, -1, 65536
for i = 1, count do
  local entries, id = buckets[bucket_of_id[i]], string.sub(ids, (i - 1) * id_bytes + 1, i * id_bytes)
  local at = entries and string.find(entries, id, 1, true)
  local claimed = at and minute - unpack_struct('>I2', entries, at - entry_minute_bytes)
  if entries and not at and string.byte(entries, -1) == 0 then
    local score = call('ZSCORE', claims_key .. '_apart', id)
    claimed = score and minute - math.floor(tonumber(score) / 256)
  end
  local age = -1
  if claimed then
    age = math.min(claimed % 65536, age_max)
    if age <= indexed_age then oldest_age, youngest_age = math.max(oldest_age, age), math.min(youngest_age, age) end
  end
  ages[i] = string.format('%04x', age + 1)
end

-- The minutes are in the order of their numbers. Returns how many of them are before this one.
local function minutes_before(wanted)
  local from, to = 0, call('ZCARD', minutes_key)
  while from < to do
    local middle = math.floor((from + to) / 2)
    if tonumber(call('ZRANGE', minutes_key, middle, middle)[1]) < wanted then from = middle + 1 else to = middle end
  end
  return from
end

local function number_at(rank)
  return call('ZRANGE', minutes_key, rank, rank, 'WITHSCORES')[2]
end

local above, to = '0', '18446744073709551615'
if oldest_age >= 0 then
  -- The segment of a claim may have been opened in the minute before.
  local earlier = minutes_before(minute - oldest_age) - 1
  if earlier >= 0 then above = number_at(earlier) end
  if tonumber(state[6] or '0') > tonumber(above) then above = state[6] end
  to = number_at(minutes_before(minute - youngest_age + 1)) or to
end

local settled_age = -1
local oldest = call('ZRANGE', segments_key, 0, 0)[1]
if oldest then settled_age = age_up_to('(' .. string.match(oldest, '(%d+)$')) end
return { table.concat(ages), tostring(settled_age), tostring(indexed_age), above, to, indexed_to }
