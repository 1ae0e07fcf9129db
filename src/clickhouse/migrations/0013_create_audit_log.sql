-- Who did what to which account, environment, key or deletion request, when and from where. Two lines an action: one before
-- it (stage 0) and one after it (stage 1) with the outcome. A line that is copied twice is one. Nothing changes or removes
-- lines, and the service's user has no right to.
CREATE TABLE IF NOT EXISTS audit_log {{on_cluster}}
(
  at DateTime64(3, 'UTC') COMMENT 'When it was written',
  id String COMMENT 'The same in both lines of an action',
  stage UInt8 COMMENT '0 before the action, 1 after it',
  actor String COMMENT 'The kind of access: admin_token, command_line, api_key or person',
  actor_name String COMMENT 'Whose access it is: an e-mail address, a key, the user of the machine',
  address String COMMENT 'Address of the caller, or name of the machine',
  action String COMMENT 'What was done',
  account_id String COMMENT 'The account of which something was done; empty if none',
  app_id String COMMENT 'The environment of which something was done; empty if none',
  key_id String COMMENT 'The API key with which it was done; empty if with none',
  deletion_request_id String COMMENT 'The deletion request or export; empty if none',
  details String COMMENT 'Parameters of the action, as JSON',
  outcome String COMMENT 'begun, done, refused (nothing was changed), or unknown'
)
ENGINE = {{engine ReplacingMergeTree}}
ORDER BY (at, id, stage)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_compressed_bytes_to_fsync_after_merge = 1
COMMENT 'Two lines for each action: who, what, when, from where'
