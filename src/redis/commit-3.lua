-- Commits checked records of one shard: rate limits, idempotency claims and appends to the open segments, in one step.
-- Atomic, since a key must never be claimed for a record that was not appended, and a repeat of the commit (after a lost
-- reply) must find what the first one did.
--
-- Checks first, then writes: a script that fails in the middle keeps its earlier writes, so nothing that
-- can fail comes after the first write. (A Redis out of memory refuses the first write, not later ones.)
--
-- KEYS
--   1  state of the shard (hash): epoch, clock_us, limit_clock_us, limit_clock_ahead_us, last_number, bytes,
--      rows, claim_bucket_count, claim_clock_us, claims_kept_from, suppression_version, joined, registry_version,
--      open.<table> = "<number> <commits> <opened_ms>"
--   2  outstanding segments (sorted set, by number)
--   3  answers (hash): of each process's last commit, "<sequence> <minute of the clock of claims> <answer>"
-- ARGV
--   1  epoch of the deployment          2  sequence number of this commit in its process
--   3  backlog bytes at most            4  a segment of this many bytes takes no further commit
--   5  the calling process              6  what is to be decided (layout: src/ingest/pack.ts)
--   7  a segment this old in ms takes no further commit   8  the version of the suppressions that the caller has applied
--   9  joined users that may wait
--   10  the version of the registry by which the environments of the records were found
--   11… of each table that gets rows: its name, the marker row of its segments, the rows for it, how many records they are, and
--       the lines of the ledger that count its plain records, and those with a claim
-- Returns one string:
--   "e"  this Redis is not that deployment's, or its registry was loaded since the environments were found
--   "x"  the process has made a later commit since, so what became of this one is no longer known
--   "o"  the backlog is full                    "v<version>"  the shard has this newer version of the suppressions; nothing is
--                                                             stored, now or by a later copy of this commit
--   "*"  every record is stored, as nearly always
--   "=" and a letter per record: "s" stored, "r" repeat, "d" repeat with other content, "k" skipped because its user is suppressed,
--       "u" skipped and its anonymous user not joined for lack of room. For a skipped record a row with only its key's id is appended
--   or, where a limit may lack room, one answer per group, joined by commas: its letters, or
--   "l<i>:<ms>"  limit i (from 0) has no room for <ms> more
-- Cost in commands: 3, + 3 or 4 per table, + 2 where a segment is full, + 3 for the ledger, + 3; with limits + 4 (a window's
-- length), with claims + 4, however many they are (up to two thousand), and + 2 if some are apart; with joined users up to 2.
-- Limits let repeats pass only in groups that say so.
--
-- A segment consists of blocks, one per commit: a line of stamps that begins with a comma, then the rows that get them.
-- The rows are appended as they came: Lua hashes all bytes of every string it makes, 1.7 ns per byte, which was
-- 44 % of what bulk loads cost Redis when the script joined rows and stamps.

local state_key, segments_key, answers_key = KEYS[1], KEYS[2], KEYS[3]
local epoch, sequence = ARGV[1], tonumber(ARGV[2])
local backlog_bytes_max, segment_bytes_max = tonumber(ARGV[3]), tonumber(ARGV[4])
local process, packed, segment_age_ms_max, suppression_version = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local joined_max, registry_version, first_table = tonumber(ARGV[9]), tonumber(ARGV[10]), 11
local copied_bytes_min = 65536
-- Below this size another command costs more than another string.
local one_command_bytes_max = 2048
local prefix = string.sub(state_key, 1, -6)
local shard = tonumber(string.match(state_key, '^{s(%d+)}'))
local call, unpack_struct, pack_struct = redis.call, struct.unpack, struct.pack
local sub, find, byte, char, rep = string.sub, string.find, string.byte, string.char, string.rep

-- 1. Is this the right Redis, and has this commit already been made?

local tables, state_fields = {}, { 'epoch', 'clock_us', 'last_number', 'bytes', 'claim_bucket_count', 'claims_kept_from',
  'limit_clock_us', 'limit_clock_ahead_us', 'claim_clock_us', 'rows', 'suppression_version', 'joined', 'registry_version' }
local first_open = #state_fields
local bytes_to_come = #packed
for i = first_table, #ARGV, 6 do
  tables[#tables + 1] = { name = ARGV[i], marker = ARGV[i + 1], rows = ARGV[i + 2], records = tonumber(ARGV[i + 3]), counts = ARGV[i + 4],
    claim_counts = ARGV[i + 5], at = 1, pieces = {}, kept = 0 }
  bytes_to_come = bytes_to_come + #ARGV[i + 2]
  state_fields[#state_fields + 1] = 'open.' .. ARGV[i]
end
local state = call('HMGET', state_key, unpack(state_fields))
if state[1] ~= epoch or tonumber(state[13] or '0') > registry_version then return 'e' end
local kept = call('HGET', answers_key, process)
if kept then
  local last_sequence, last_answer = string.match(kept, '^(%d+) %d+ (.*)$')
  if sequence == tonumber(last_sequence) then return last_answer end
  if sequence < tonumber(last_sequence) then return 'x' end
end
if state[11] and tonumber(state[11]) > suppression_version then return 'v' .. state[11] end
local backlog_bytes = tonumber(state[4] or '0')
if backlog_bytes + bytes_to_come > backlog_bytes_max then return 'o' end

-- When Redis's clock was set back, numbers and times of acceptance must not repeat, so this clock stands still.
local time = call('TIME')
local time_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local time_ms = math.floor(time_us / 1000)
local now_us = math.max(time_us, tonumber(state[2] or '0'))
local now_ms = math.floor(now_us / 1000)

-- Claims and kept answers age by a clock of their own. Only age-claims-4.lua moves it, and no jump of Redis's clock does.
-- The first commit starts it.
local claim_clock_us = tonumber(state[9] or now_us)
local claim_minute = math.floor(claim_clock_us / 60000000)

-- Reading many fields of one hash costs a seventh of reading as many keys. Lua can pass fewer than 8,000 arguments at once.
local fields_max = 2000

local function read_fields(key, fields, command)
  command = command or 'HMGET'
  if #fields <= fields_max then return call(command, key, unpack(fields)) end
  local values = {}
  for first = 1, #fields, fields_max do
    local some = call(command, key, unpack(fields, first, math.min(first + fields_max - 1, #fields)))
    for i = 1, #some do values[first + i - 1] = some[i] end
  end
  return values
end

-- `pairs_of`: field, value, field, value …
local function write_fields(key, pairs_of, command)
  for first = 1, #pairs_of, 2 * fields_max do
    call(command or 'HSET', key, unpack(pairs_of, first, math.min(first + 2 * fields_max - 1, #pairs_of)))
  end
end

-- 2. Rate limits. Each limited user or environment has a packed log: a first sum, then entries, oldest first, each a time in ms and the sum
-- up to this entry, all modulo 2^32. The used amount is the last sum minus the sum before the first entry that still counts. When the first
-- entries are dropped, the sum of the last dropped one becomes the first sum. A hash holds the logs that were written within one
-- generation, which is as long as an entry counts. So every entry that counts is in the hash of this generation or of the previous one.

local sum_bytes, entry_bytes, modulus = 4, 8, 4294967296
local kinds, kind_of_log, logs, log_starts, log_times, log_sums, log_used, log_added, at = {}, {}, {}, {}, {}, {}, {}, {}, nil
-- What all groups together would add to each log, and the least maximum of any group.
local log_costs, log_maxes = {}, {}

-- Limited callers wait for time to pass, so after Redis's clock was set back this clock goes on from where it was.
local limit_clock_us = tonumber(state[7] or '0')
local limit_clock_ahead_us = math.max(tonumber(state[8] or '0'), limit_clock_us - time_us)
local limit_now_us = time_us + limit_clock_ahead_us
local limit_now_ms = math.floor(limit_now_us / 1000)

-- The key of the hash for logs whose entries count for the same time; their windows may differ.
local function generation_key(kind, generation)
  return string.format('%slimit_sums:%d:%.0f', prefix, kind.keeps_ms, generation)
end

local log_count, kind_count = 0, nil
kind_count, at = unpack_struct('>B', packed)
for k = 1, kind_count do
  local window_ms, granularity_ms, count
  window_ms, granularity_ms, count, at = unpack_struct('>I4I4I2', packed, at)
  -- Read by one call each, which costs less than a call for every log.
  local digests = { unpack_struct(rep('c12', count), packed, at) }
  local costs = { unpack_struct('>' .. rep('I4', count), packed, at + 12 * count) }
  local maxes = { unpack_struct('>' .. rep('I4', count), packed, at + 16 * count) }
  digests[count + 1], at = nil, at + 20 * count
  local keeps_ms = window_ms + granularity_ms
  local slot = limit_now_ms - limit_now_ms % granularity_ms
  local generation = math.floor(limit_now_ms / keeps_ms)
  -- `before`: how many logs precede those of this kind. `only_entries`: logs with one entry, by its count.
  local kind = { keeps_ms = keeps_ms, slot = slot, slot_time = slot % modulus, generation = generation, before = log_count,
    digests = digests, only_entries = {} }
  kinds[k] = kind
  local newer = read_fields(generation_key(kind, generation), digests)
  local missing, missing_digests, missing_count = {}, {}, 0
  for n = 1, count do
    local i, log = log_count + n, newer[n]
    kind_of_log[i], log_costs[i], log_maxes[i] = kind, costs[n], maxes[n]
    if log then
      logs[i], kind.expires = log, true
    else
      missing_count = missing_count + 1
      missing[missing_count], missing_digests[missing_count] = i, digests[n]
    end
  end
  if missing_count > 0 then
    local older = read_fields(generation_key(kind, generation - 1), missing_digests)
    for n = 1, missing_count do logs[missing[n]] = older[n] or '' end
  end
  log_count = log_count + count
end

-- Reads a log: where it begins without the entries that no longer count, the time and sum of its last entry, and the used amount.
local function sum_up(i)
  local log, keeps_ms, start = logs[i], kind_of_log[i].keeps_ms, 1
  log_added[i] = log_added[i] or 0
  if log == '' then log_used[i] = 0 return end
  local before, time_ms, sum = unpack_struct('>I4I4I4', log)
  local last = #log - sum_bytes + 1
  while (limit_now_ms - time_ms) % modulus >= keeps_ms do
    start, before = start + entry_bytes, sum
    if start == last then break end
    time_ms, sum = unpack_struct('>I4I4', log, start + sum_bytes)
  end
  -- Unless it was just read: the last entry.
  if start + entry_bytes < last then time_ms, sum = unpack_struct('>I4I4', log, last - sum_bytes) end
  log_times[i], log_sums[i] = time_ms, sum
  log_starts[i], log_used[i] = start, (sum - before) % modulus
end

-- Milliseconds to wait until there is room for `cost` more; 0 if there is room now.
local function wait_for_room(i, cost, max)
  if not log_used[i] then sum_up(i) end
  local kind, left = kind_of_log[i], max - cost - log_added[i]
  if log_used[i] <= left then return 0 end
  local log = logs[i]
  for entry_at = (log_starts[i] or 1) + sum_bytes, #log, entry_bytes do
    local time_ms, sum = unpack_struct('>I4I4', log, entry_at)
    if (log_sums[i] - sum) % modulus <= left then return kind.keeps_ms - (limit_now_ms - time_ms) % modulus end
  end
  if cost <= max then return kind.slot + kind.keeps_ms - limit_now_ms end
  return kind.keeps_ms
end

-- The log with what this commit adds, and without the entries that have left the window.
local function renewed_log(i)
  local log, kind, added = logs[i], kind_of_log[i], log_added[i]
  if log == '' then
    local only = kind.only_entries[added]
    if not only then
      only = pack_struct('>I4I4I4', 0, kind.slot_time, added)
      kind.only_entries[added] = only
    end
    return only
  end
  local sum = (log_sums[i] + added) % modulus
  if log_times[i] == kind.slot_time then
    return sub(log, log_starts[i], -sum_bytes - 1) .. pack_struct('>I4', sum)
  end
  if log_starts[i] > 1 then log = sub(log, log_starts[i]) end
  return log .. pack_struct('>I4I4', kind.slot_time, sum)
end

-- 3. Claims: a hash of buckets of 16-byte entries, oldest first: 2 bytes of minute, 13 bytes of event id, and the fingerprint of
-- the record (src/ingest/fingerprint.ts). The first bits of its ids, in 3 bytes, name a bucket. A bucket is rewritten as a
-- whole, which drops expired entries; with few entries that costs less than a command per claim. Only age-claims-4.lua decides
-- which entries have expired; it also removes them from buckets that are not written.
--
-- Anybody can compute ids, and so choose keys whose ids share a bucket: adding a thousand to a bucket of 64,000 took 0.6 s. So a bucket's
-- size is bounded, at a size that keys which nobody chose do not reach. Further claims are apart: in a sorted set of ids, scored by 256
-- times the minute, plus the fingerprint. Such a bucket ends with a mark: an entry of zeros except for the minute of its last claim that is
-- apart.

local claims_key = prefix .. 'claims'
local apart_key, apart_mark, bucket_bytes_max = claims_key .. '_apart', string.rep('\0', 14), 2048
-- How many other claims a claim that is apart counts as in the byte budget.
local apart_weight = 4
local ids_a_bucket = 16777216 / tonumber(state[5])
-- Until age-claims-4.lua has run, nothing has expired.
local minutes_kept = state[6] and claim_minute - tonumber(state[6]) or 65535
local minute_bytes = pack_struct('>I2', claim_minute % 65536)
-- By claim: its id with its fingerprint, the name of its bucket, and the bucket's entries, or false.
local entries, fields, buckets, claim_count = {}, {}, {}, 0
-- The buckets to write, as arguments of a command, and where each is among them.
local changed, changed_count, place_of = {}, 0, {}
-- The minutes in the marks of buckets, the fingerprints of claims that are apart, and those that this commit adds.
local marks, apart, apart_added = {}, {}, {}

-- Whether what begins with a minute of the clock of claims, in two bytes, has expired.
local function has_expired(text, from)
  local high, low = byte(text, from, from + 1)
  return (claim_minute - high * 256 - low) % 65536 > minutes_kept
end

local id_count
id_count, at = unpack_struct('>I2', packed, at)
if id_count > 0 then
  -- Read by one call each, which costs less than a call for every claim.
  local prefixes = { unpack_struct('>' .. rep('I3', id_count), packed, at) }
  entries = { unpack_struct(rep('c14', id_count), packed, at + 3 * id_count) }
  at = at + 17 * id_count
  for i = 1, id_count do prefixes[i] = prefixes[i] - prefixes[i] % ids_a_bucket end
  fields = { unpack_struct(rep('c3', id_count), pack_struct('>' .. rep('I3', id_count), unpack(prefixes, 1, id_count))) }
  fields[id_count + 1] = nil
  buckets = read_fields(claims_key, fields)
  if call('EXISTS', apart_key) == 1 then
    local sought = {}
    for i = 1, id_count do
      local held = buckets[i]
      if held and sub(held, -14) == apart_mark then
        marks[fields[i]], buckets[i] = sub(held, -16, -15), sub(held, 1, -17)
        sought[#sought + 1] = sub(entries[i], 1, 13)
      end
    end
    if #sought > 0 then
      for n, score in ipairs(read_fields(apart_key, sought, 'ZMSCORE')) do
        if score then apart[sought[n]] = tonumber(score) % 256 end
      end
    end
  end
end

-- The entries of a claim's bucket, with those of this commit; false if it has none.
local function held_with(i)
  local place = place_of[fields[i]]
  return place and changed[place] or buckets[i]
end

-- The fingerprint of an id that was claimed before or in this commit.
local function claimed_as(held, i)
  local id = sub(entries[i], 1, 13)
  local from = find(held, id, 1, true)
  return from and byte(held, from + 13) or apart[id]
end

-- Claims an id in memory. Returns the letter of its record.
local function claim(i)
  local entry, field, held = entries[i], fields[i], held_with(i)
  if held then
    local fingerprint, first = claimed_as(held, i), 1
    if fingerprint then return fingerprint == byte(entry, 14) and 'r' or 'd' end
    while first < #held and has_expired(held, first) do first = first + 16 end
    if first > 1 then held = sub(held, first) end
  end
  if not held then
    held, claim_count = minute_bytes .. entry, claim_count + 1
  elseif #held < bucket_bytes_max then
    held, claim_count = held .. minute_bytes .. entry, claim_count + 1
  else
    local id, fingerprint = sub(entry, 1, 13), byte(entry, 14)
    marks[field], apart[id] = minute_bytes, fingerprint
    apart_added[#apart_added + 1], apart_added[#apart_added + 2] = string.format('%.0f', claim_minute * 256 + fingerprint), id
    claim_count = claim_count + apart_weight
  end
  local place = place_of[field]
  if not place then
    place = changed_count + 2
    changed[place - 1], place_of[field], changed_count = field, place, place
  end
  changed[place] = held
  return 's'
end

-- 4. Joined users: anonymous users that were identified as suppressed ones. The commit that carries the identification records them
-- here, and later commits skip what is sent about them, until all processes know them from the list of suppressions. So no request
-- waits for a join, and no process has to be informed at once.

local joined_key = prefix .. 'joined'
local names, joins, joined, new_joins = nil, {}, {}, {}
local joined_count = tonumber(state[12] or '0')

local name_count, join_count, names_bytes
name_count, join_count, names_bytes, at = unpack_struct('>I2I2I4', packed, at)
if joined_count + join_count == 0 then
  at = at + names_bytes
else
  names = {}
  for i = 1, name_count do
    local length, value_length
    length, value_length, at = unpack_struct('>BB', packed, at)
    names[i] = sub(packed, at, at + length - 1)
    at = at + length
    if value_length > 0 then
      local value = sub(packed, at, at + value_length - 1)
      local log, max
      log, max, at = unpack_struct('>I2I4', packed, at + value_length)
      joins[i] = { value = value, log = log + 1, max = max }
    end
  end
  if joined_count > 0 and name_count > 0 then
    for i, value in ipairs(read_fields(joined_key, names)) do
      if value then joined[names[i]] = true end
    end
  end
end

-- Joins the user of a record, if there is room.
local function join(i)
  local joining = joins[i]
  if joined_count >= joined_max or wait_for_room(joining.log, 1, joining.max) > 0 then return end
  log_added[joining.log] = log_added[joining.log] + 1
  joined_count, joined[names[i]] = joined_count + 1, true
  new_joins[#new_joins + 1], new_joins[#new_joins + 2] = names[i], joining.value
end

-- 5. Decide every group, in order, or all at once if there is room for all. The outcomes are counted by environment, table and letter,
-- for the ledger.

local environments, environment_count = {}, nil
environment_count, at = unpack_struct('>I2', packed, at)
for i = 1, environment_count do
  local length = byte(packed, at)
  environments[i], at = sub(packed, at + 1, at + length), at + 1 + length
end
-- By letter, then by environment and table. What the caller has counted is not counted again: plain records where every limit has room,
-- and all records where each is stored.
local counted = { s = {}, r = {}, d = {}, k = {}, u = {} }
local next_id, next_name = 1, 1
-- Whether every limit has room for all groups, and whether every record is stored. `claimed`: the letters of ids that are
-- repeats, if all were claimed before the runs were read.
local fits, all_stored, claimed = nil, false, {}

-- Whether all records of the runs packed from here are repeats.
local function all_claimed(run_at, run_count)
  local id = next_id
  for _ = 1, run_count do
    local kind, _, records = unpack_struct('>BI2I2', packed, run_at)
    if kind < 128 then return false end
    for i = id, id + records - 1 do
      local held = held_with(i)
      if not held or not claimed_as(held, i) then return false end
    end
    id, run_at = id + records, run_at + 9
  end
  return true
end

-- Keeps only the key of a table's next row: the marker of its segments with the row's id and number. Only such a row shows that a record
-- with a key was skipped.
local function keep_key(rows_of, bytes)
  local id = string.match(rows_of.rows, '^%["%d+","(%x+)"', rows_of.at)
  if not id then return end
  local ending = sub(rows_of.rows, rows_of.at + bytes - 8, rows_of.at + bytes - 1)
  local text = '["","' .. id .. sub(rows_of.marker, #id + 6, -2) .. string.match(ending, '%d+\n$')
  rows_of.pieces[#rows_of.pieces + 1] = { text = text }
end

-- Keeps the next rows of a table.
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

-- Decides records of a run: all of it, or one that has a claim. Returns their letters.
local function decide_records(limited, kind, environment, records, bytes)
  local letter, skipped, has_key, is_key = limited and 'r' or 's', nil, kind >= 128, false
  local is_plain = kind < 32
  if kind >= 128 then
    kind = kind - 128
    if not limited then letter = fits and (claimed[next_id] or 's') or claim(next_id) end
    next_id = next_id + 1
  end
  if kind >= 64 then kind, skipped, is_key = kind - 64, 'k', true end
  if kind >= 32 then
    kind = kind - 32
    if names and not limited then
      if joins[next_name] and not joined[names[next_name]] then join(next_name) end
      if joined[names[next_name]] then skipped = 'k' elseif skipped then skipped = 'u' end
    end
    next_name = next_name + records
  end
  local rows_of = tables[kind + 1]
  if letter == 's' then
    if not skipped then
      keep(rows_of, bytes, records)
    else
      letter = skipped
      if is_key and bytes > 0 then keep(rows_of, bytes, 0) elseif has_key then keep_key(rows_of, bytes) end
    end
  end
  rows_of.at = rows_of.at + bytes
  if not limited and not (is_plain and fits) then
    local counts, place = counted[letter], environment * #tables + kind
    counts[place] = (counts[place] or 0) + records
  end
  return rep(letter, records)
end

-- Decides the run packed here. Returns the letters of its records.
local function decide_run(limited)
  local kind, environment, records, bytes
  kind, environment, records, bytes, at = unpack_struct('>BI2I2I4', packed, at)
  if kind < 128 then return decide_records(limited, kind, environment, records, bytes) end
  local rows_of, letters = tables[kind % 32 + 1], {}
  for i = 1, records do
    local row_end = find(rows_of.rows, '\n', rows_of.at, true)
    letters[i] = decide_records(limited, kind, environment, 1, row_end - rows_of.at + 1)
  end
  return table.concat(letters)
end

-- Decides the group packed here. Returns its answer.
local function decide_group()
  local limit_count, run_count
  limit_count, at = unpack_struct('>I2', packed, at)
  local pass_repeats = limit_count >= 32768
  if pass_repeats then limit_count = limit_count - 32768 end
  local wait_ms, wait_limit, charged, costs = 0, 0, {}, {}
  for i = 1, limit_count do
    local log, cost, max
    log, cost, max, at = unpack_struct('>I2I4I4', packed, at)
    local ms = wait_for_room(log + 1, cost, max)
    if ms > wait_ms then wait_ms, wait_limit = ms, i - 1 end
    charged[i], costs[i] = log + 1, cost
  end
  run_count, at = unpack_struct('>I2', packed, at)
  if pass_repeats and all_claimed(at, run_count) then wait_ms, limit_count = 0, 0 end
  local limited = wait_ms > 0
  if not limited then
    for i = 1, limit_count do log_added[charged[i]] = log_added[charged[i]] + costs[i] end
  end
  local letters = {}
  for i = 1, run_count do letters[i] = decide_run(limited) end
  return limited and string.format('l%d:%.0f', wait_limit, wait_ms) or table.concat(letters)
end

local one_by_one, marked, group_bytes
one_by_one, marked, group_bytes, at = unpack_struct('>BBI4', packed, at)
local groups_end = at + group_bytes
fits = one_by_one == 0
for i = 1, log_count do
  local left = log_maxes[i] - log_costs[i]
  -- Most users have an empty log.
  if logs[i] ~= '' then
    sum_up(i)
    left = left - log_used[i]
  end
  if left < 0 then fits = false end
end
local answers, answer = {}, nil
if fits then
  log_added, all_stored = log_costs, marked == 0
  for i = 1, id_count do
    local letter = claim(i)
    if letter ~= 's' then claimed[i], all_stored = letter, false end
  end
  if all_stored then
    answer = '*'
    for _, rows_of in ipairs(tables) do keep(rows_of, #rows_of.rows, rows_of.records) end
  else
    at = groups_end
    while at <= #packed do answers[#answers + 1] = decide_run(false) end
    answer = table.concat(answers)
    answer = find(answer, '[^s]') and '=' .. answer or '*'
  end
else
  while at < groups_end do answers[#answers + 1] = decide_group() end
  answer = table.concat(answers, ',')
end

-- 6. Write: rows first, then what records them. From here on nothing fails.

local received = string.format('"%d.%03d"]\n', math.floor(now_ms / 1000), now_ms % 1000)
local last_number = tonumber(state[3] or '0')
local changes = { 'clock_us', string.format('%.0f', now_us) }
if not state[9] then
  changes[3], changes[4] = 'claim_clock_us', string.format('%.0f', now_us)
  call('ZADD', prefix .. 'claim_minutes', last_number, claim_minute)
end
local backlog_rows_added = 0

-- The rows of a table to store: unchanged, unless some are repeats or limited.
local function rows_to_append(rows_of)
  local pieces, rows = rows_of.pieces, rows_of.rows
  if #pieces == 1 and pieces[1].to and pieces[1].to - pieces[1].from == #rows then return rows end
  local kept = {}
  for i, piece in ipairs(pieces) do kept[i] = piece.text or sub(rows, piece.from, piece.to - 1) end
  return table.concat(kept)
end

local function append_rows(index, rows_of)
  local table_name = rows_of.name
  local open = state[first_open + index]
  local number, commits, opened_ms, segment_key
  local text, length = '', 0
  if open and open ~= '' then
    number, commits, opened_ms = string.match(open, '^(%d+) (%d+) (%d+)$')
    segment_key = prefix .. 'segment:' .. table_name .. ':' .. number
    length = call('STRLEN', segment_key)
    -- An overdue segment may be open only because a power cut undid its sealing (`appendfsync everysec`):
    -- ClickHouse may have it, and would not take what is appended to it now.
    local open_ms = time_ms - tonumber(opened_ms)
    -- Below zero: the clock was set back since.
    if length >= segment_bytes_max or open_ms >= segment_age_ms_max or open_ms < 0 then
      number = nil
      -- A string that grew occupies up to twice its bytes; a copy does not.
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
    number, commits, opened_ms = string.format('%.0f', last_number), 0, string.format('%.0f', time_ms)
    segment_key = prefix .. 'segment:' .. table_name .. ':' .. number
    text = ',' .. number .. ',0,' .. received .. rows_of.marker .. '\n'
  end
  commits = tonumber(commits) + 1
  text = text .. ',' .. number .. ',' .. commits .. ',' .. received
  local rows = rows_to_append(rows_of)
  if #rows < one_command_bytes_max then
    call('APPEND', segment_key, text .. rows)
  else
    -- The far end first: if Redis refuses the length, nothing is left behind.
    call('SETRANGE', segment_key, length + #text, rows)
    call('SETRANGE', segment_key, length, text)
  end
  if commits == 1 then call('ZADD', segments_key, number, table_name .. ':' .. number) end
  call('HINCRBY', prefix .. 'segment_rows', table_name .. ':' .. number, rows_of.kept)
  backlog_bytes = backlog_bytes + #text + #rows
  backlog_rows_added = backlog_rows_added + rows_of.kept
  changes[#changes + 1] = 'open.' .. table_name
  changes[#changes + 1] = number .. ' ' .. commits .. ' ' .. opened_ms
  rows_of.number = number
end

for index, rows_of in ipairs(tables) do
  if #rows_of.pieces > 0 then append_rows(index, rows_of) end
end

-- The ledger. Stored records belong to the minute of their segment, all others to the present minute. A finished minute is removed from
-- here for good (booked-6.lua), so nothing is added to minutes before that of the oldest open segment. Most records are accepted or
-- repeated: they are appended to the minute's log, in blocks of a line with kind and term and a line for each environment, since fields
-- of a hash cost too much where a commit has many environments.
local terms = { s = 'accepted', r = 'repeated', d = 'differing', k = 'suppressed', u = 'suppressed' }
local minute_now, ledger_logs = math.floor(now_us / 60000000), {}
for _, rows_of in ipairs(tables) do
  rows_of.kind = string.match(rows_of.name, '^[^.]+')
  rows_of.minute = rows_of.number and math.floor(tonumber(rows_of.number) / 60000000) or minute_now
end

-- Begins a block of the minute's log. Returns its lines, to which more may be added until the log is written.
local function block_of(minute, kind, term)
  local block = { kind .. ' ' .. term .. '\n' }
  local log = ledger_logs[minute] or {}
  log[#log + 1], ledger_logs[minute] = block, log
  return block
end

for letter, counts in pairs(counted) do
  local is_logged = letter == 's' or letter == 'r'
  local blocks = {}
  for place, count in pairs(counts) do
    local index = place % #tables + 1
    local rows_of, app_id = tables[index], environments[math.floor(place / #tables) + 1]
    if is_logged then
      local block = blocks[index]
      if not block then
        block = block_of(letter == 's' and rows_of.minute or minute_now, rows_of.kind, terms[letter])
        blocks[index] = block
      end
      block[#block + 1] = app_id .. ' ' .. count .. '\n'
    else
      local field = app_id .. ' ' .. rows_of.kind .. ' ' .. terms[letter]
      call('HINCRBY', string.format('%sledger:%d', prefix, minute_now), field, count)
      call('SADD', prefix .. 'ledger_minutes', minute_now)
    end
  end
end
for _, rows_of in ipairs(tables) do
  local counts = (fits and rows_of.counts or '') .. (all_stored and rows_of.claim_counts or '')
  if counts ~= '' then
    local block = block_of(rows_of.minute, rows_of.kind, 'accepted')
    block[#block + 1] = counts
  end
end
for minute, log in pairs(ledger_logs) do
  for i, block in ipairs(log) do log[i] = table.concat(block) end
  call('APPEND', string.format('%sledger_log:%d', prefix, minute), table.concat(log))
  call('SADD', prefix .. 'ledger_minutes', minute)
end

if claim_count > 0 then
  for field, mark in pairs(marks) do
    local place = place_of[field]
    if place and not has_expired(mark, 1) then changed[place] = changed[place] .. mark .. apart_mark end
  end
  write_fields(claims_key, changed)
  write_fields(apart_key, apart_added, 'ZADD')
  call('HINCRBY', prefix .. 'claim_counts', claim_minute, claim_count)
end

for _, kind in ipairs(kinds) do
  local changed, changed_count = {}, 0
  for n, digest in ipairs(kind.digests) do
    local i = kind.before + n
    if log_added[i] and log_added[i] > 0 then
      changed[changed_count + 1], changed[changed_count + 2] = digest, renewed_log(i)
      changed_count = changed_count + 2
    end
  end
  if #changed > 0 then
    local key = generation_key(kind, kind.generation)
    write_fields(key, changed)
    -- A hash that existed before already has a time to live.
    if not kind.expires then
      call('PEXPIRE', key, math.ceil((kind.generation + 2) * kind.keeps_ms - limit_now_ms))
    end
  end
end

if #new_joins > 0 then
  write_fields(joined_key, new_joins)
  changes[#changes + 1], changes[#changes + 2] = 'joined', joined_count
  -- A process that does not know yet that the identity is suppressed would not ask for the users joined to it.
  if suppression_version > tonumber(state[11] or '0') then
    changes[#changes + 1], changes[#changes + 2] = 'suppression_version', string.format('%.0f', suppression_version)
  end
end

if log_count > 0 then
  changes[#changes + 1], changes[#changes + 2] = 'limit_clock_us', string.format('%.0f', limit_now_us)
  if limit_clock_ahead_us > 0 then
    changes[#changes + 1], changes[#changes + 2] = 'limit_clock_ahead_us', string.format('%.0f', limit_clock_ahead_us)
  end
end
changes[#changes + 1], changes[#changes + 2] = 'last_number', string.format('%.0f', last_number)
changes[#changes + 1], changes[#changes + 2] = 'bytes', string.format('%.0f', backlog_bytes)
if backlog_rows_added > 0 then
  changes[#changes + 1], changes[#changes + 2] = 'rows', string.format('%.0f', tonumber(state[10] or '0') + backlog_rows_added)
end
call('HSET', state_key, unpack(changes))
call('HSET', answers_key, process, string.format('%d %d %s', sequence, claim_minute, answer))
return answer
