-- Tools that read the schema show these texts.
ALTER TABLE minute_rejections {{on_cluster}}
  COMMENT COLUMN app_id 'Environment',
  COMMENT COLUMN minute 'The minute that was counted',
  COMMENT COLUMN instance 'The API process that counted',
  COMMENT COLUMN code 'Why the records were rejected',
  COMMENT COLUMN field 'The field at fault; * for a name that the sender chose',
  COMMENT COLUMN rejected 'How many records',
  MODIFY COMMENT 'Rejected records by environment, minute, code and field, kept for 15 days; read it with FINAL'
