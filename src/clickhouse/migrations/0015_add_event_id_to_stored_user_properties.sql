-- The id of a message's key, so that the index of keys can be made anew from the rows; zero without a key. Only the
-- description of the table changes: rows that are there have the default.
ALTER TABLE stored_user_properties {{on_cluster}} ADD COLUMN IF NOT EXISTS event_id UUID AFTER app_id
