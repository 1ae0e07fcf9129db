-- Seals the open segments of one shard that are old enough, and lists the oldest outstanding segments that
-- are sealed. One step: a reader that lists first and seals later would also see a segment that a commit
-- opened in between, read it half full and forget it.
--
-- KEYS  1  state of the shard (hash)   2  outstanding segments (sorted set)
-- ARGV  1  epoch of the deployment     2  age in ms from which an open segment is sealed
--       3  how many to list            4… names of the tables
-- Returns the members, "<table>:<number>" each, or nil when this Redis is not that deployment's.
-- Cost in commands: 3, + 2 a sealed segment, + 2 if it is large.

local state_key, segments_key = KEYS[1], KEYS[2]
local epoch, age_ms, list_max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local prefix = string.sub(state_key, 1, -6)

-- A string that grew by appending holds up to twice its bytes; a copy of it does not. Measured: a sealed
-- segment of 150 kB took +70 %, now +9 %.
local copied_bytes_min = 65536

local fields = { 'epoch' }
for i = 4, #ARGV do fields[#fields + 1] = 'open.' .. ARGV[i] end
local state = redis.call('HMGET', state_key, unpack(fields))
if state[1] ~= epoch then return nil end

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local open_members = {}
for i = 4, #ARGV do
  local open = state[i - 2]
  if open and open ~= '' then
    local number, _, opened_ms = string.match(open, '^(%d+) (%d+) (%d+)$')
    local open_ms = now_ms - tonumber(opened_ms)
    -- Below zero: the clock was set back since.
    if open_ms >= age_ms or open_ms < 0 then
      redis.call('HDEL', state_key, 'open.' .. ARGV[i])
      local key = prefix .. 'segment:' .. ARGV[i] .. ':' .. number
      if redis.call('STRLEN', key) >= copied_bytes_min then
        redis.call('COPY', key, key .. ':copy')
        redis.call('RENAME', key .. ':copy', key)
      end
    else
      open_members[ARGV[i] .. ':' .. number] = true
    end
  end
end

-- As many more as may be open, so that skipping those leaves enough.
local sealed = {}
for _, member in ipairs(redis.call('ZRANGE', segments_key, 0, list_max + #ARGV - 4)) do
  if not open_members[member] and #sealed < list_max then sealed[#sealed + 1] = member end
end
return sealed
