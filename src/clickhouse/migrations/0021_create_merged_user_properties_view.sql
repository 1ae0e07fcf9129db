-- The properties of every merged user: of each key the latest value, whichever of the user's ids it came by.
-- An anonymous user has an empty identity and its user_id as anonymous_id; an identified one has none.
-- Calls with an identity are not joined, so that a filter on it reaches their table.
-- The latest is the last one accepted. A call with a time of its own counts as accepted then, if that is before its segment was opened.
-- Other calls are never compared by a clock: a segment's number rises whatever Redis's clock does.
CREATE VIEW IF NOT EXISTS merged_user_properties {{on_cluster}} AS
SELECT
  app_id,
  identity,
  anonymous_id,
  CAST((groupArray(key), groupArray(value)), 'Map(String, String)') AS properties
FROM
(
  SELECT app_id, identity, anonymous_id, key, argMax(value, (since, segment, commit_number, row_number)) AS value
  FROM
  (
    SELECT
      app_id,
      identity,
      CAST(NULL, 'Nullable(UInt64)') AS anonymous_id,
      properties,
      if(time < received_at, least(toUInt64(toUnixTimestamp64Micro(time)), segment), segment) AS since,
      segment,
      commit_number,
      row_number
    FROM user_properties
    WHERE identity != ''
    UNION ALL
    SELECT
      p.app_id AS app_id,
      ifNull(m.merged_identity, '') AS identity,
      if(ifNull(m.merged_identity, '') = '', p.user_id, NULL) AS anonymous_id,
      p.properties AS properties,
      if(p.time < p.received_at, least(toUInt64(toUnixTimestamp64Micro(p.time)), p.segment), p.segment) AS since,
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
