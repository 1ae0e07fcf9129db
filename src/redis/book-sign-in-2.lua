-- Counts an attempt to sign in as if its password were wrong, and returns when it may be checked. One step, so that many
-- attempts at once wait for one another. A caller that finds the password right takes the attempt back.
--
-- KEYS  1  attempts of a person or a known browser (hash)   2  attempts of an address (hash)
-- ARGV  1  ms that an attempt may wait   2  ms after which attempts are forgotten   3  the shortest spacing in ms
--       4, 5  attempts without spacing and the longest spacing in ms, for the first key   6, 7  for the second
-- Returns the milliseconds to wait; if that is too long, they are negative and nothing is booked.
-- Cost in commands: 7.

local wait_max, remembered_ms, spacing_min = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local counts, at = {}, now
for i = 1, 2 do
  local found = redis.call('HMGET', KEYS[i], 'count', 'next')
  counts[i] = tonumber(found[1] or '0')
  -- Redis's clock may have been set back since.
  local next = math.min(tonumber(found[2] or '0'), now + tonumber(ARGV[3 + 2 * i]) + wait_max)
  if next > at then at = next end
end
if at - now > wait_max then return now - at end
for i = 1, 2 do
  local over = counts[i] + 1 - tonumber(ARGV[2 + 2 * i])
  local spacing = 0
  if over >= 0 then spacing = math.min(spacing_min * 2 ^ math.min(over, 20), tonumber(ARGV[3 + 2 * i])) end
  redis.call('HSET', KEYS[i], 'count', counts[i] + 1, 'next', string.format('%.0f', at + spacing))
  redis.call('PEXPIRE', KEYS[i], remembered_ms)
end
return at - now
