-- Suppresses or frees users of an account. One step, so that the names, the version and the change that tells API processes
-- and ClickHouse of it are one.
--
-- A name is the keyed hash of an identity or user_id, and holds in all environments; "<hash>@<app_id>" holds in one. Each
-- name has roots: the names because of which it is suppressed. A name that was asked for is its own root, written "-". A name
-- is free when it has no root left.
--
-- KEYS  1  epoch   2  state of all suppressions (hash): version, mirrored, changes_from, users:<account>
--       3  changes (sorted set by version)   4  the account's names (hash): "<version since when> <root> …"
--       5  prefix of the names by root (sets)
-- ARGV  1  epoch of the deployment   2  account   3  "suppress" or "free"   4  names that an account may have
--       5  changes to keep   6…  to suppress: name and root each; the root "=<name>" stands for all roots of that name.
--          To free: names, each with all of its roots
-- Returns the version by which the names are as was asked; "full" if the account has no room; nil when this is
-- another deployment's Redis.

local epoch_key, state_key, changes_key, names_key, by_root = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local epoch, account, action, names_max, changes_kept = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local call = redis.call

if call('GET', epoch_key) ~= epoch then return nil end
local state = call('HMGET', state_key, 'version', 'mirrored')
local version, mirrored = tonumber(state[1] or '0'), tonumber(state[2] or '0')
local time = call('TIME')
local next_version = math.max(version + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
local since = string.format('%.0f', next_version)

-- The names that are touched, as they are to be: since when, and a list of roots.
local known = {}
local function read(name)
  if known[name] then return known[name] end
  local value = call('HGET', names_key, name)
  local entry = { since = since, roots = {}, has = {}, is_new = not value }
  if value then
    local since_then, roots = string.match(value, '^(%d+) (.+)$')
    entry.since = since_then
    for root in string.gmatch(roots, '%S+') do entry.roots[#entry.roots + 1], entry.has[root] = root, true end
  end
  known[name] = entry
  return entry
end

local added, removed, freed, users = {}, {}, {}, 0

local function add(name, root)
  local entry = read(name)
  if entry.has[root] then return end
  entry.roots[#entry.roots + 1], entry.has[root], entry.changed = root, true, true
  added[#added + 1] = { name, root }
  if root == '-' then users = users + 1 end
end

local function remove(name, root)
  local entry = read(name)
  if not entry.has[root] then return end
  entry.has[root], entry.changed = nil, true
  removed[#removed + 1] = { name, root }
  if root == '-' then users = users - 1 end
end

if action == 'suppress' then
  for i = 6, #ARGV, 2 do
    local name, root = ARGV[i], ARGV[i + 1]
    if string.sub(root, 1, 1) == '=' then
      local other = string.sub(root, 2)
      for each in pairs(read(other).has) do add(name, each == '-' and other or each) end
    else
      add(name, root)
    end
  end
else
  for i = 6, #ARGV do
    for _, root in ipairs(read(ARGV[i]).roots) do
      local own = root == '-' and ARGV[i] or root
      remove(own, '-')
      for _, name in ipairs(call('SMEMBERS', by_root .. own)) do remove(name, own) end
    end
  end
end
if #added + #removed == 0 then return string.format('%.0f', version) end

local new_names = 0
for _, entry in pairs(known) do
  if entry.is_new and entry.changed then new_names = new_names + 1 end
end
if action == 'suppress' and call('HLEN', names_key) + new_names > names_max then return 'full' end

-- From here on nothing fails.
for name, entry in pairs(known) do
  if entry.changed then
    local words = { entry.since }
    for _, root in ipairs(entry.roots) do
      if entry.has[root] then words[#words + 1] = root end
    end
    if #words > 1 then
      call('HSET', names_key, name, table.concat(words, ' '))
    else
      call('HDEL', names_key, name)
      freed[#freed + 1] = name
    end
  end
end
local function told(pairs_of)
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
local lines = { since .. ' ' .. account, told(added), told(removed), table.concat(freed, ' ') }
call('ZADD', changes_key, since, table.concat(lines, '\n'))
call('HSET', state_key, 'version', since)

-- A process whose version is older than the changes that are left here reads everything again.
local over, last = call('ZCARD', changes_key) - changes_kept, nil
if over > 0 then
  local oldest = call('ZRANGE', changes_key, 0, over - 1, 'WITHSCORES')
  for i = 2, #oldest, 2 do
    if tonumber(oldest[i]) <= mirrored then last = oldest[i] end
  end
end
if last then
  call('ZREMRANGEBYSCORE', changes_key, '-inf', last)
  call('HSET', state_key, 'changes_from', last)
end
return since
