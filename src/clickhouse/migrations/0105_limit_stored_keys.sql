-- The same for the index of keys, where only workers and copies are refused: a restore writes markers of all shards to every server.
ALTER TABLE stored_keys {{on_cluster}} ADD CONSTRAINT IF NOT EXISTS shard_limits CHECK
  NOT match(getSetting('log_comment'), '^(index [0-9]+$|store asked move )') OR if(hash = 0, rest, segment % 64) NOT IN (
    SELECT shard FROM shard_limits FINAL WHERE of_restore IN ('') AND kind = 'door' AND if(
      door = 'open', startsWith(getSetting('log_comment'), 'store asked move '),
      door != getSetting('log_comment')))
