-- Commits checked records of one shard: rate limits, idempotency claims and appends to the open segments,
-- in one step. Atomic, since a key must never be claimed for a record that was not appended, and a repeat
-- of the commit (after a lost reply) must find what the first one did.
--
-- Checks first, then writes: a script that fails in the middle keeps its earlier writes, so nothing that
-- can fail comes after the first write. (A Redis out of memory refuses the first write, not later ones.)
--
-- KEYS
--   1  state of the shard (hash): epoch, clock_us, last_number, bytes, rows, claim_buckets,
--      claim_window_minutes, open.<table> = "<number> <commits> <opened_ms>"
--   2  outstanding segments (sorted set, by number)
--   3  answer of the calling process's last commit: "<sequence> <answer>"
-- ARGV
--   1  epoch of the deployment          2  sequence number of this commit in its process
--   3  backlog bytes at most            4  a segment of this many bytes takes no further commit
--   5  milliseconds to keep the answer  6  the packed groups (layout: src/ingest/pack.ts)
--   7  a segment this old in ms takes no further commit
--   8… of each table: its name, the marker row of its segments, the rows for it
-- Returns one string:
--   "e"  this Redis is not that deployment's    "x"  the commit is older than the last one and not repeated
--   "o"  the backlog is full                    else one answer a group, joined by commas:
--   "l<i>:<ms>"  limit i (from 0) has no room for <ms> more    or a letter a record: "s" stored, "r" repeat
-- Cost in commands: 3, + 3 or 4 a table, + 2 where a segment is full, + 3; + 2 a limit; + 2 a claim.
-- A repeat passes the limits of its group only where the group says so.
--
-- A segment is blocks, one a commit: a line of stamps, which begins with a comma, and the rows that it ends.
-- The rows are appended as they came: Lua hashes all bytes of every string it makes, 1.7 ns a byte, which was
-- 44 % of what bulk loads cost Redis when the script joined rows and stamps.

local state_key, segments_key, answer_key = KEYS[1], KEYS[2], KEYS[3]
local epoch, sequence = ARGV[1], tonumber(ARGV[2])
local backlog_bytes_max, segment_bytes_max = tonumber(ARGV[3]), tonumber(ARGV[4])
local answer_kept_ms, packed, segment_age_ms_max = ARGV[5], ARGV[6], tonumber(ARGV[7])
local copied_bytes_min = 65536
-- Below this another command costs more than another string.
local joined_bytes_max = 2048
local prefix = string.sub(state_key, 1, -6)
local shard = tonumber(string.match(state_key, '^{s(%d+)}'))
local call, unpack_struct, pack_struct, find = redis.call, struct.unpack, struct.pack, string.find

-- 1. Is this the right Redis, and was this commit made already?

local tables, state_fields = {}, { 'epoch', 'clock_us', 'last_number', 'bytes', 'claim_buckets', 'claim_window_minutes' }
local bytes_to_come = #packed
for i = 8, #ARGV, 3 do
  tables[#tables + 1] = { name = ARGV[i], marker = ARGV[i + 1], rows = ARGV[i + 2], at = 1, pieces = {}, kept = 0 }
  bytes_to_come = bytes_to_come + #ARGV[i + 2]
  state_fields[#state_fields + 1] = 'open.' .. ARGV[i]
end
local state = call('HMGET', state_key, unpack(state_fields))
if state[1] ~= epoch then return 'e' end
local kept = call('GET', answer_key)
if kept then
  local gap = find(kept, ' ', 1, true)
  local last_sequence = tonumber(string.sub(kept, 1, gap - 1))
  if sequence == last_sequence then return string.sub(kept, gap + 1) end
  if sequence < last_sequence then return 'x' end
end
local backlog_bytes = tonumber(state[4] or '0')
if backlog_bytes + bytes_to_come > backlog_bytes_max then return 'o' end

-- A clock that was set back must not reopen limits or repeat numbers.
local time = call('TIME')
local now_us = math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), tonumber(state[2] or '0'))
local now_ms = math.floor(now_us / 1000)
local now_minute = math.floor(now_ms / 60000) % 65536

-- 2. Rate limits: a log of (time, count) entries a key, packed, oldest first.

local logs = {}

local function read_log(key)
  local log = { times = {}, counts = {}, first = 1 }
  local bytes = call('GET', key)
  if bytes then
    for at = 1, #bytes, 12 do
      local n = #log.times + 1
      log.times[n], log.counts[n] = unpack_struct('>dI4', bytes, at)
    end
  end
  logs[key] = log
  return log
end

-- Milliseconds to wait until `cost` more fit; 0 when they fit now.
local function wait_for_room(log, cost, max, window_ms, granularity_ms)
  local keeps = window_ms + granularity_ms
  while log.times[log.first] and log.times[log.first] <= now_ms - keeps do log.first = log.first + 1 end
  local used = 0
  for i = log.first, #log.times do used = used + log.counts[i] end
  if used + cost <= max then return 0 end
  for i = log.first, #log.times do
    used = used - log.counts[i]
    if used + cost <= max then return log.times[i] + keeps - now_ms end
  end
  return keeps
end

local function add_to_log(log, cost, window_ms, granularity_ms)
  local slot = now_ms - now_ms % granularity_ms
  local last = #log.times
  if last >= log.first and log.times[last] == slot then
    log.counts[last] = log.counts[last] + cost
  else
    log.times[last + 1], log.counts[last + 1] = slot, cost
  end
  log.keeps_ms = window_ms + granularity_ms
end

-- 3. Claims: buckets of 16-byte entries, oldest first: 2 bytes of minute, 14 bytes of event id.

local claim_buckets = tonumber(state[5] or '1024')
local claim_window_minutes = tonumber(state[6] or '1440')
local buckets, new_claims, claim_count = {}, {}, 0

-- The key of an id's bucket, and whether the id was claimed before, also in this commit.
local function look_up(id)
  local b1, b2, b3 = string.byte(id, 1, 3)
  local key = prefix .. 'claims:' .. ((b1 * 65536 + b2 * 256 + b3) % claim_buckets)
  local bucket = buckets[key]
  if bucket == nil then
    bucket = call('GET', key) or ''
    buckets[key] = bucket
  end
  local added = new_claims[key]
  return key, find(bucket, id, 1, true) or (added and find(added, id, 1, true))
end

-- Claims an id in memory; false when it was claimed before.
local function claim(id)
  local key, claimed = look_up(id)
  if claimed then return false end
  new_claims[key] = (new_claims[key] or '') .. pack_struct('>I2', now_minute) .. id
  claim_count = claim_count + 1
  return true
end

-- Whether all records of the runs packed from here are repeats.
local function all_claimed(run_at, count)
  for _ = 1, count do
    if unpack_struct('>B', packed, run_at) < 128 then return false end
    local _, claimed = look_up(string.sub(packed, run_at + 7, run_at + 20))
    if not claimed then return false end
    run_at = run_at + 21
  end
  return true
end

-- 4. Decide every group, in order.

local answers = {}

-- Notes that the next rows of a table are stored.
local function keep(rows_of, bytes, records)
  local pieces = rows_of.pieces
  local last = pieces[#pieces]
  if last and last.to == rows_of.at then
    last.to = last.to + bytes
  else
    pieces[#pieces + 1] = { from = rows_of.at, to = rows_of.at + bytes }
  end
  rows_of.kept = rows_of.kept + records
end

local at, size = 1, #packed
while at <= size do
  local limit_count
  limit_count, at = unpack_struct('>I2', packed, at)
  local pass_repeats = limit_count >= 32768
  if pass_repeats then limit_count = limit_count - 32768 end
  local wait_ms, wait_limit = 0, 0
  local charged = {}
  for i = 1, limit_count do
    local digest, cost, max, window_ms, granularity_ms
    digest, cost, max, window_ms, granularity_ms, at = unpack_struct('>c12I4I4I4I4', packed, at)
    local key = prefix .. 'limit:' .. digest
    local log = logs[key] or read_log(key)
    local ms = wait_for_room(log, cost, max, window_ms, granularity_ms)
    if ms > wait_ms then wait_ms, wait_limit = ms, i - 1 end
    charged[i] = { log, cost, window_ms, granularity_ms }
  end
  local run_count
  run_count, at = unpack_struct('>I2', packed, at)
  if pass_repeats and all_claimed(at, run_count) then wait_ms, charged = 0, {} end
  local limited = wait_ms > 0
  if not limited then
    for i = 1, #charged do add_to_log(unpack(charged[i])) end
  end
  local letters = {}
  for i = 1, run_count do
    local kind, records, bytes
    kind, records, bytes, at = unpack_struct('>BI2I4', packed, at)
    local fresh = not limited
    if kind >= 128 then
      kind = kind - 128
      fresh = fresh and claim(string.sub(packed, at, at + 13))
      at = at + 14
    end
    local rows_of = tables[kind + 1]
    if fresh then keep(rows_of, bytes, records) end
    letters[i] = string.rep(fresh and 's' or 'r', records)
    rows_of.at = rows_of.at + bytes
  end
  answers[#answers + 1] = limited and string.format('l%d:%.0f', wait_limit, wait_ms) or table.concat(letters)
end
local answer = table.concat(answers, ',')

-- 5. Write: rows first, then what remembers them. From here on nothing fails.

local received = string.format('"%d.%03d"]\n', math.floor(now_ms / 1000), now_ms % 1000)
local last_number = tonumber(state[3] or '0')
local changes = { 'clock_us', string.format('%.0f', now_us) }
local backlog_rows_added = 0

-- The rows that are stored of a table: as they came, unless some were repeats or limited.
local function rows_to_append(rows_of)
  local pieces, rows = rows_of.pieces, rows_of.rows
  if #pieces == 1 and pieces[1].to - pieces[1].from == #rows then return rows end
  local kept = {}
  for i, piece in ipairs(pieces) do kept[i] = string.sub(rows, piece.from, piece.to - 1) end
  return table.concat(kept)
end

local function append_rows(index, rows_of)
  local table_name = rows_of.name
  local open = state[6 + index]
  local number, commits, opened_ms, segment_key
  local text, length = '', 0
  if open and open ~= '' then
    number, commits, opened_ms = string.match(open, '^(%d+) (%d+) (%d+)$')
    segment_key = prefix .. 'segment:' .. table_name .. ':' .. number
    length = call('STRLEN', segment_key)
    -- An overdue one may be open only because a power cut took its sealing back (`appendfsync everysec`):
    -- ClickHouse may have it, and would not take what is appended to it now.
    if length >= segment_bytes_max or now_ms - tonumber(opened_ms) >= segment_age_ms_max then
      number = nil
      -- A string that grew holds up to twice its bytes; a copy does not.
      if length >= copied_bytes_min then
        call('COPY', segment_key, segment_key .. ':copy')
        call('RENAME', segment_key .. ':copy', segment_key)
      end
      length = 0
    end
  end
  if not number then
    last_number = math.max(last_number + 1, now_us)
    -- The tables hold the segments of all shards: no two shards may ever give the same number.
    last_number = last_number + (shard - last_number) % 64
    number, commits, opened_ms = string.format('%.0f', last_number), 0, string.format('%.0f', now_ms)
    segment_key = prefix .. 'segment:' .. table_name .. ':' .. number
    text = ',' .. number .. ',0,' .. received .. rows_of.marker .. '\n'
  end
  commits = tonumber(commits) + 1
  text = text .. ',' .. number .. ',' .. commits .. ',' .. received
  local rows = rows_to_append(rows_of)
  if #rows < joined_bytes_max then
    call('APPEND', segment_key, text .. rows)
  else
    -- The far end first: what Redis refuses for its length leaves nothing behind.
    call('SETRANGE', segment_key, length + #text, rows)
    call('SETRANGE', segment_key, length, text)
  end
  if commits == 1 then call('ZADD', segments_key, number, table_name .. ':' .. number) end
  call('HINCRBY', prefix .. 'segment_rows', table_name .. ':' .. number, rows_of.kept)
  backlog_bytes = backlog_bytes + #text + #rows
  backlog_rows_added = backlog_rows_added + rows_of.kept
  changes[#changes + 1] = 'open.' .. table_name
  changes[#changes + 1] = number .. ' ' .. commits .. ' ' .. opened_ms
end

for index, rows_of in ipairs(tables) do
  if rows_of.kept > 0 then append_rows(index, rows_of) end
end

for key, entries in pairs(new_claims) do
  local bucket = buckets[key]
  local kept_entries = bucket
  local quarter = math.floor(#bucket / 64) * 16
  if #bucket > 0 then
    local function expired(offset)
      local minute = unpack_struct('>I2', bucket, offset + 1)
      return (now_minute - minute) % 65536 > claim_window_minutes
    end
    if expired(quarter) then
      local cut = quarter + 16
      while cut < #bucket and expired(cut) do cut = cut + 16 end
      kept_entries = string.sub(bucket, cut + 1)
    end
  end
  if kept_entries ~= bucket then
    call('SET', key, kept_entries .. entries, 'EX', 604800)
  else
    call('APPEND', key, entries)
    -- Idle buckets go after a week; a busy one renews its week once an hour.
    local newest = #bucket > 0 and unpack_struct('>I2', bucket, #bucket - 15)
    if not newest or (now_minute - newest) % 65536 >= 60 then call('EXPIRE', key, 604800) end
  end
end
if claim_count > 0 then call('HINCRBY', prefix .. 'claim_counts', math.floor(now_ms / 60000), claim_count) end

for key, log in pairs(logs) do
  if log.keeps_ms then
    local entries = {}
    for i = log.first, #log.times do entries[#entries + 1] = pack_struct('>dI4', log.times[i], log.counts[i]) end
    call('SET', key, table.concat(entries), 'PX', log.keeps_ms)
  end
end

changes[#changes + 1], changes[#changes + 2] = 'last_number', string.format('%.0f', last_number)
changes[#changes + 1], changes[#changes + 2] = 'bytes', string.format('%.0f', backlog_bytes)
call('HSET', state_key, unpack(changes))
if backlog_rows_added > 0 then call('HINCRBY', state_key, 'rows', backlog_rows_added) end
call('SET', answer_key, sequence .. ' ' .. answer, 'PX', answer_kept_ms)
return answer
