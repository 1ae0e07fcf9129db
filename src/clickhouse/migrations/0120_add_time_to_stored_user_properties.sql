-- When the values were true, so that an archive that is loaded late replaces nothing newer. Only the description of the table
-- changes: rows that are there have the time of their acceptance.
ALTER TABLE stored_user_properties {{on_cluster}} ADD COLUMN IF NOT EXISTS time DateTime64(3, 'UTC') DEFAULT received_at AFTER identity
