-- Suppresses or frees users of an account, in pieces: each call does a bounded amount of work and returns how far it got. A call is one
-- step, so that its names, its version and the change that informs API processes and ClickHouse agree.
--
-- A name is the keyed hash of an identity or user_id, and holds in all environments; "<hash>@<app_id>" holds in one. Each name has roots:
-- the names because of which it is suppressed. A name that was asked for is its own root, written "-". A root "+<root>" says that the name
-- is that of an anonymous user who was identified as a user suppressed because of <root>. Anybody may cause such names, so they have bounds
-- of their own. A name is free when it has no root left. The root itself goes last, so an interrupted call can be repeated.
--
-- KEYS  1  epoch   2  state of all suppressions (hash): version, changes_from, users:<account>, and
--       joined:<account>: names whose roots all begin with "+"
--       3  changes (sorted set by version)   4  the account's names (hash): "<version since when> <root> …"
--       5  prefix of the names by root (sets)   6  roots of the account that are being freed (set)
--       7  what ClickHouse lacks (sorted set)   8  the changes that it lacks, by version (hash)
-- ARGV  1  epoch of the deployment   2  account   3  "suppress", "join" or "free"   4  names that an account may have
--       5  changes to keep   6  roots that a name may have, besides "-"   7  "+" names of one root   8  "+" names of an account
--       9  work that a call does: names and roots that it looks at   10…  to suppress: name and root each.
--          To join: the user_id's name in its environment, and the name of the identity. To free: names; then no names, in as many
--          calls as it takes until no root is left
-- Returns the version from which on the request holds, how many arguments are done, and a count: to suppress the pairs that are new, to
-- join those that had no room, to free the roots that are left to free. Returns "full", with nothing changed, if the account has no room;
-- nil when this is another deployment's Redis.

local epoch_key, state_key, changes_key, names_key, by_root, freeing_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local uncopied_key, uncopied_changes_key = KEYS[7], KEYS[8]
local epoch, account, action, names_max, changes_kept = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local roots_max, joined_per_root_max, joined_max = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local work_left, first_argument = tonumber(ARGV[9]), 10
local call = redis.call

if call('GET', epoch_key) ~= epoch then return nil end
local state = call('HMGET', state_key, 'version', 'joined:' .. account)
local version, joined_before = tonumber(state[1] or '0'), tonumber(state[2] or '0')
local time = call('TIME')
local next_version = math.max(version + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
local since = string.format('%.0f', next_version)

local function is_joined(root) return string.byte(root) == 43 end
local function is_only_joined(entry)
  return entry.count > 0 and entry.joined == entry.count
end

-- The names that this call touches, as they are to be written: since when they are suppressed, and their roots.
local known = {}
local function read(name)
  if known[name] then return known[name] end
  work_left = work_left - 1
  local value = call('HGET', names_key, name)
  local entry = { since = since, roots = {}, has = {}, count = 0, joined = 0 }
  if value then
    local since_then, roots = string.match(value, '^(%d+) (.+)$')
    entry.since = since_then
    for root in string.gmatch(roots, '%S+') do
      entry.count = entry.count + 1
      if is_joined(root) then entry.joined = entry.joined + 1 end
      entry.roots[entry.count], entry.has[root] = root, true
      work_left = work_left - 1
    end
  end
  entry.was_there, entry.was_only_joined = value, is_only_joined(entry)
  known[name] = entry
  return entry
end

local added, removed, freed, users = {}, {}, {}, 0

local function add(name, root)
  local entry = read(name)
  local full = root ~= '-' and entry.count - (entry.has['-'] and 1 or 0) >= roots_max
  if entry.has[root] or full then return end
  entry.count, entry.joined = entry.count + 1, entry.joined + (is_joined(root) and 1 or 0)
  entry.roots[#entry.roots + 1], entry.has[root], entry.changed = root, true, true
  added[#added + 1] = { name, root }
  if root == '-' then users = users + 1 end
end

local function remove(name, root)
  local entry = read(name)
  if not entry.has[root] then return end
  entry.count, entry.joined = entry.count - 1, entry.joined - (is_joined(root) and 1 or 0)
  entry.has[root], entry.changed = nil, true
  removed[#removed + 1] = { name, root }
  if root == '-' then users = users - 1 end
end

-- 1. What is to be done.

local done, left = 0, 0
local to_free, ended, kept = {}, {}, {}

if action == 'suppress' then
  for i = first_argument, #ARGV, 2 do
    if work_left <= 0 then break end
    add(ARGV[i], ARGV[i + 1])
    if ARGV[i + 1] == '-' then kept[#kept + 1] = ARGV[i] end
    done = done + 2
  end
elseif action == 'join' then
  local joined_of, joined_added = {}, 0
  for i = first_argument, #ARGV, 2 do
    if work_left <= 0 then break end
    local name, identity = ARGV[i], ARGV[i + 1]
    local entry = read(name)
    local had_room = false
    for _, reason in ipairs({ identity, identity .. string.match(name, '@.*') }) do
      for _, root in ipairs(read(reason).roots) do
        local joining = is_joined(root) and root or '+' .. (root == '-' and reason or root)
        joined_of[joining] = joined_of[joining] or call('SCARD', by_root .. joining)
        local has_room = joined_of[joining] < joined_per_root_max and joined_before + joined_added < joined_max
        if has_room and not entry.has[joining] then
          local was_new = entry.count == 0
          local count = entry.count
          add(name, joining)
          if entry.count > count then joined_of[joining] = joined_of[joining] + 1 end
          if was_new then joined_added = joined_added + 1 end
        end
        had_room = had_room or entry.has[joining]
      end
    end
    -- An identity that is free by now joins nobody.
    local is_suppressed = read(identity).count + read(identity .. string.match(name, '@.*')).count > 0
    if is_suppressed and not had_room then left = left + 1 end
    done = done + 2
  end
else
  for i = first_argument, #ARGV do
    if work_left <= 0 then break end
    for _, root in ipairs(read(ARGV[i]).roots) do
      to_free[#to_free + 1] = root == '-' and ARGV[i] or is_joined(root) and string.sub(root, 2) or root
    end
    done = done + 1
  end
  local root = #to_free == 0 and work_left > 0 and call('SRANDMEMBER', freeing_key)
  if root then
    local is_last = true
    for _, set in ipairs({ root, '+' .. root }) do
      local count = math.max(1, math.floor(work_left / 2))
      local names = call('SRANDMEMBER', by_root .. set, count)
      for _, name in ipairs(names) do remove(name, set) end
      is_last = is_last and #names < count
    end
    if is_last then
      remove(root, '-')
      ended[1] = root
    end
  end
  left = #to_free
end

local new_names, new_joined = 0, 0
for _, entry in pairs(known) do
  if entry.changed then
    new_names = new_names + (entry.count > 0 and 1 or 0) - (entry.was_there and 1 or 0)
    new_joined = new_joined + (is_only_joined(entry) and 1 or 0) - (entry.was_only_joined and 1 or 0)
  end
end
local own_names = new_names - new_joined
if action == 'suppress' and own_names > 0 and call('HLEN', names_key) - joined_before + own_names > names_max then
  return 'full'
end

-- 2. Write. From here on nothing fails.

if #to_free > 0 then call('SADD', freeing_key, unpack(to_free)) end
for _, root in ipairs(ended) do call('SREM', freeing_key, root) end
-- A user who is suppressed again is no longer to be freed, even if an interrupted call has left its root to free.
for _, name in ipairs(kept) do call('SREM', freeing_key, name) end
if action == 'free' then left = call('SCARD', freeing_key) end
if action == 'suppress' then left = #added end
if #added + #removed == 0 then return { string.format('%.0f', version), done, left } end

for name, entry in pairs(known) do
  if entry.changed then
    if entry.count > 0 then
      local words = { entry.since }
      for _, root in ipairs(entry.roots) do
        if entry.has[root] then words[#words + 1] = root end
      end
      call('HSET', names_key, name, table.concat(words, ' '))
    else
      call('HDEL', names_key, name)
      freed[#freed + 1] = name
    end
  end
end
local function text_of(pairs_of)
  local words = {}
  for i, pair in ipairs(pairs_of) do words[i] = pair[1] .. '|' .. pair[2] end
  return table.concat(words, ' ')
end
for _, pair in ipairs(added) do
  if pair[2] ~= '-' then call('SADD', by_root .. pair[2], pair[1]) end
end
for _, pair in ipairs(removed) do
  if pair[2] ~= '-' then call('SREM', by_root .. pair[2], pair[1]) end
end
call('HINCRBY', state_key, 'users:' .. account, users)
if new_joined ~= 0 then call('HINCRBY', state_key, 'joined:' .. account, new_joined) end
local lines = { since .. ' ' .. account, text_of(added), text_of(removed), table.concat(freed, ' ') }
local change = table.concat(lines, '\n')
call('ZADD', changes_key, since, change)
call('HSET', uncopied_changes_key, since, change)
call('ZADD', uncopied_key, 2, since)
call('HSET', state_key, 'version', since)

-- A process whose version is older than the changes that are left here reads everything again.
local dropped_max = 20
local dropped = math.min(call('ZCARD', changes_key) - changes_kept, dropped_max)
if dropped > 0 then
  local last = call('ZRANGE', changes_key, dropped - 1, dropped - 1, 'WITHSCORES')[2]
  call('ZREMRANGEBYRANK', changes_key, 0, dropped - 1)
  call('HSET', state_key, 'changes_from', last)
end
return { since, done, left }
