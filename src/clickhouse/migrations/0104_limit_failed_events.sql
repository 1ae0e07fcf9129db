-- As 0101_limit_stored_events.
ALTER TABLE failed_events {{on_cluster}} ADD CONSTRAINT IF NOT EXISTS shard_limits CHECK
  segment >= toUInt64OrZero(extract(getSetting('log_comment'), '^store \\w+ ([0-9]+)$')) AND segment % 64 NOT IN (
    SELECT shard FROM shard_limits FINAL WHERE of_restore IN ('') AND multiIf(
      kind = 'refused', NOT startsWith(getSetting('log_comment'), 'store asked ')
        AND value >= toUInt64OrZero(extract(getSetting('log_comment'), '^store \\w+ ([0-9]+)$')),
      door = 'open', startsWith(getSetting('log_comment'), 'store asked move '),
      door != getSetting('log_comment')))
