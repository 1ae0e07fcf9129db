-- For the evidence of each target: the identity that a resolved user_id was merged into (empty for none), and where in the
-- submitted list a named user stood first. Only the description of the table changes: rows that are there have the defaults.
ALTER TABLE deletion_targets {{on_cluster}}
  ADD COLUMN IF NOT EXISTS merged_identity String,
  ADD COLUMN IF NOT EXISTS place UInt32
