-- The properties of every merged user: of each key the latest value, whichever of the user's ids it came by.
-- An anonymous user has an empty identity and its user_id as anonymous_id; an identified one has none.
CREATE VIEW IF NOT EXISTS merged_user_properties {{on_cluster}} AS
SELECT
  app_id,
  identity,
  anonymous_id,
  CAST((groupArray(key), groupArray(value)), 'Map(String, String)') AS properties
FROM
(
  SELECT
    p.app_id AS app_id,
    if(p.identity != '', p.identity, ifNull(m.merged_identity, '')) AS identity,
    if(identity = '', p.user_id, NULL) AS anonymous_id,
    key,
    argMax(value, (p.segment, p.commit_number, p.row_number)) AS value
  FROM
  (
    SELECT app_id, user_id, identity, segment, commit_number, row_number, key, value
    FROM user_properties
    ARRAY JOIN mapKeys(properties) AS key, mapValues(properties) AS value
  ) AS p
  LEFT JOIN merged_identities AS m ON p.app_id = m.app_id AND p.user_id = m.user_id
  GROUP BY app_id, identity, anonymous_id, key
)
GROUP BY app_id, identity, anonymous_id
