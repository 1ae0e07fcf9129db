-- Calls that gave an anonymous user an identity, without marker rows.
CREATE VIEW IF NOT EXISTS user_identities {{on_cluster}} AS
SELECT * FROM stored_user_identities WHERE app_id != ''
