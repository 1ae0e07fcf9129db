-- A refused row that names nobody is kept without its text, which no deletion would find: its length, its SHA-256 and its
-- event_id are all that stays. Empty for rows that are kept with their text. Only the description of the table changes.
ALTER TABLE failed_events {{on_cluster}}
  ADD COLUMN IF NOT EXISTS text_bytes UInt32,
  ADD COLUMN IF NOT EXISTS text_hash String,
  ADD COLUMN IF NOT EXISTS event_id String
