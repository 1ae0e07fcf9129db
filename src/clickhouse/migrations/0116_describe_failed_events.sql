-- Tools that read the schema show these texts.
ALTER TABLE failed_events {{on_cluster}}
  COMMENT COLUMN table_name 'Kind of the record: events, user_properties or user_identities; empty in markers of the service',
  COMMENT COLUMN segment 'The segment with which the row was to be stored',
  COMMENT COLUMN line 'The line of the row in its segment',
  COMMENT COLUMN app_id 'Environment',
  COMMENT COLUMN user_id 'The anonymous user; NULL if the record came with an identity',
  COMMENT COLUMN identity 'The identified user; empty if the record came with a user_id',
  COMMENT COLUMN row 'The refused row as JSON; empty if it names no user',
  COMMENT COLUMN error_code 'ClickHouse''s code of the error',
  COMMENT COLUMN error 'Why ClickHouse refused the row',
  COMMENT COLUMN failed_at 'When it was refused',
  COMMENT COLUMN text_bytes 'Length of the row''s text in bytes',
  COMMENT COLUMN text_hash 'Hash of the row''s text',
  COMMENT COLUMN event_id 'As in events',
  MODIFY COMMENT 'Rows that ClickHouse refused for their data. An empty table_name is a marker of the service'
