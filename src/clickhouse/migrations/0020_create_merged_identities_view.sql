-- The identity of every identified user_id: the first accepted one.
CREATE VIEW IF NOT EXISTS merged_identities {{on_cluster}} AS
SELECT app_id, user_id, argMin(identity, (segment, commit_number, row_number)) AS merged_identity
FROM user_identities
GROUP BY app_id, user_id
