-- Calls that set user properties, without marker rows.
CREATE VIEW IF NOT EXISTS user_properties {{on_cluster}} AS
SELECT * FROM stored_user_properties WHERE app_id != ''
