-- ClickHouse itself refuses what arrives too late: it reads the limits when an insert's first rows are there, so an insert that it lists
-- in system.processes after a limit was stored heeds that limit. An insert of a segment has the segment's number at the end of its
-- log_comment; one without a number counts as older than any limit. Costs an insert about 3 ms of CPU, however many limits there are.
ALTER TABLE stored_events {{on_cluster}} ADD CONSTRAINT IF NOT EXISTS shard_limits CHECK
  segment >= toUInt64OrZero(extract(getSetting('log_comment'), '^store \\w+ ([0-9]+)$')) AND segment % 64 NOT IN (
    SELECT shard FROM shard_limits FINAL WHERE of_restore IN ('') AND multiIf(
      kind = 'refused', NOT startsWith(getSetting('log_comment'), 'store asked ')
        AND value >= toUInt64OrZero(extract(getSetting('log_comment'), '^store \\w+ ([0-9]+)$')),
      door = 'open', startsWith(getSetting('log_comment'), 'store asked move '),
      door != getSetting('log_comment')))
