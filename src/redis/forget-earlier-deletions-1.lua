#!lua flags=allow-oom
-- Forgets which deletions an export has waited for, once all of them are over. Otherwise each reading of the export would look them up
-- again, and there may be thousands. Allowed when Redis is full, since it makes room.
--
-- KEYS  1  the export's request: a line with the ids of the deletions, and the document
-- Returns 1; 0 when the export has ended.

local text = redis.call('GET', KEYS[1])
if not text then return 0 end
local line_end = string.find(text, '\n', 1, true)
redis.call('SET', KEYS[1], string.sub(text, line_end), 'KEEPTTL')
return 1
