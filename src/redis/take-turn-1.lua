#!lua flags=allow-oom
-- Takes a turn that may be taken once per period. Allowed when Redis is full, since some turns make room.
--
-- KEYS  1  the turn
-- ARGV  1  how long the turn is taken, in ms   2  who takes it
-- Returns 1 when it was free, else 0.

if redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1], 'NX') then return 1 end
-- A turn that was taken before Redis's clock was set back would last longer by that time.
redis.call('PEXPIRE', KEYS[1], ARGV[1], 'LT')
return 0
