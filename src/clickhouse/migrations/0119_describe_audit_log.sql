-- Tools that read the schema show these texts.
ALTER TABLE audit_log {{on_cluster}}
  COMMENT COLUMN at 'When it was written',
  COMMENT COLUMN id 'The same in both lines of an action',
  COMMENT COLUMN stage '0 before the action, 1 after it',
  COMMENT COLUMN actor 'The kind of access: admin_token, command_line, api_key or person',
  COMMENT COLUMN actor_name 'Whose access it is: an e-mail address, a key, the user of the machine',
  COMMENT COLUMN address 'Address of the caller, or name of the machine',
  COMMENT COLUMN action 'What was done',
  COMMENT COLUMN account_id 'The account of which something was done; empty if none',
  COMMENT COLUMN app_id 'The environment of which something was done; empty if none',
  COMMENT COLUMN key_id 'The API key with which it was done; empty if with none',
  COMMENT COLUMN deletion_request_id 'The deletion request or export; empty if none',
  COMMENT COLUMN details 'Parameters of the action, as JSON',
  COMMENT COLUMN outcome 'begun, done, refused (nothing was changed), or unknown',
  MODIFY COMMENT 'Two lines for each action: who, what, when, from where'
