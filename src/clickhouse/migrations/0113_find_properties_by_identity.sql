-- The properties of every merged user: of each key the latest value, whichever of the user's ids it came by.
-- An anonymous user has an empty identity and its user_id as anonymous_id; an identified one has none.
-- Calls with an identity are not joined, so that a filter on it reaches their table.
CREATE OR REPLACE VIEW merged_user_properties {{on_cluster}} AS
SELECT
  app_id,
  identity,
  anonymous_id,
  CAST((groupArray(key), groupArray(value)), 'Map(String, String)') AS properties
FROM
(
  SELECT app_id, identity, anonymous_id, key, argMax(value, (segment, commit_number, row_number)) AS value
  FROM
  (
    SELECT app_id, identity, CAST(NULL, 'Nullable(UInt64)') AS anonymous_id, properties, segment, commit_number, row_number
    FROM user_properties
    WHERE identity != ''
    UNION ALL
    SELECT
      p.app_id AS app_id,
      ifNull(m.merged_identity, '') AS identity,
      if(ifNull(m.merged_identity, '') = '', p.user_id, NULL) AS anonymous_id,
      p.properties AS properties,
      p.segment AS segment,
      p.commit_number AS commit_number,
      p.row_number AS row_number
    FROM (SELECT * FROM user_properties WHERE identity = '') AS p
    LEFT JOIN merged_identities AS m ON p.app_id = m.app_id AND p.user_id = m.user_id
  )
  ARRAY JOIN mapKeys(properties) AS key, mapValues(properties) AS value
  GROUP BY app_id, identity, anonymous_id, key
)
GROUP BY app_id, identity, anonymous_id
