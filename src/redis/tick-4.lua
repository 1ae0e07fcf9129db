#!lua flags=allow-oom
-- One tick of a shard, unless another worker has the turn: seals the open segments that are old enough, and lists the oldest sealed segments
-- that are outstanding. One step: if a caller listed first and sealed later, it would also see a segment that a commit opened in between,
-- read it half full and forget it. Allowed when Redis is full, since the segments that are listed make room.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)
--       3  present while a worker has the turn   4  present while the shard's ticks run
-- ARGV  1  epoch of the deployment     2  age in ms from which an open segment is sealed
--       3  how many to list            4  how long a turn lasts, in ms   5  how long a tick is remembered, in ms
-- Returns the members, "<table>:<number>" each; 0 when another worker has the turn; nil when this Redis is not that deployment's.
-- Cost in commands: 5, + 2 per sealed segment, + 2 if it is large.

local state_key, segments_key, turn_key, ticked_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, age_ms, list_max, turn_ms, remembered_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local prefix = string.sub(state_key, 1, -6)

-- A string that grew by appending occupies up to twice its bytes; a copy of it does not. Measured: a sealed
-- segment of 150 kB took +70 %, now +9 %.
local copied_bytes_min = 65536

if not redis.call('SET', turn_key, '', 'NX', 'PX', turn_ms) then
  -- A turn that was taken before Redis's clock was set back would last longer by the difference.
  redis.call('PEXPIRE', turn_key, turn_ms, 'LT')
  return 0
end

-- The open segments by table, also of tables and columns that the caller's version does not know, since processes of several
-- versions may be at work: what is not known to be open counts as sealed.
local state = redis.call('HGETALL', state_key)
local open_segments, open_count, epoch_here = {}, 0, nil
for i = 1, #state, 2 do
  local field, value = state[i], state[i + 1]
  if field == 'epoch' then epoch_here = value end
  if string.sub(field, 1, 5) == 'open.' and value ~= '' then
    open_segments[string.sub(field, 6)] = value
    open_count = open_count + 1
  end
end
if epoch_here ~= epoch then return nil end
redis.call('SET', ticked_key, '', 'PX', remembered_ms)

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local open_members = {}
for table_name, open in pairs(open_segments) do
  local number, _, opened_ms = string.match(open, '^(%d+) (%d+) (%d+)$')
  local open_ms = now_ms - tonumber(opened_ms)
  -- Below zero: the clock has been set back since.
  if open_ms >= age_ms or open_ms < 0 then
    redis.call('HDEL', state_key, 'open.' .. table_name)
    local key = prefix .. 'segment:' .. table_name .. ':' .. number
    if redis.call('STRLEN', key) >= copied_bytes_min then
      redis.call('COPY', key, key .. ':copy')
      redis.call('RENAME', key .. ':copy', key)
    end
  else
    open_members[table_name .. ':' .. number] = true
  end
end

-- Lists as many more as may be open, so that enough are left after skipping the open ones.
local sealed = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', segments_key, '-inf', '+inf', 'LIMIT', 0, list_max + open_count)) do
  if not open_members[member] and #sealed < list_max then sealed[#sealed + 1] = member end
end
return sealed
