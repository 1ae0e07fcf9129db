-- Tools that read the schema show these texts.
ALTER TABLE minute_counts {{on_cluster}}
  COMMENT COLUMN app_id 'Environment',
  COMMENT COLUMN minute 'The minute that was counted',
  COMMENT COLUMN instance 'The API process that counted',
  COMMENT COLUMN accepted 'Records that were accepted',
  COMMENT COLUMN repeated 'Records that were recognised as repeats',
  COMMENT COLUMN limited 'Records that a limit refused',
  COMMENT COLUMN rejected 'Records that were rejected',
  MODIFY COMMENT 'Records by environment and minute, kept for 15 days; read it with FINAL'
