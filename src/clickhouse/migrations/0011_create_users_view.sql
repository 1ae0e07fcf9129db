-- One row a merged user: whoever appears in an event, a call for properties or an identification. Reads the
-- users of all events, so filter by app_id.
CREATE VIEW IF NOT EXISTS users {{on_cluster}} AS
SELECT
  u.app_id AS app_id,
  u.identity AS identity,
  u.user_ids AS user_ids,
  p.properties['email'] AS email,
  p.properties AS properties
FROM
(
  SELECT
    app_id,
    identity,
    if(identity = '', user_id, NULL) AS anonymous_id,
    arraySort(groupUniqArrayIf(assumeNotNull(user_id), user_id IS NOT NULL)) AS user_ids
  FROM
  (
    SELECT
      s.app_id AS app_id,
      if(s.identity != '', s.identity, ifNull(m.merged_identity, '')) AS identity,
      s.user_id AS user_id
    FROM
    (
      SELECT DISTINCT app_id, identity, user_id FROM events
      UNION DISTINCT
      SELECT DISTINCT app_id, identity, user_id FROM user_properties
      UNION DISTINCT
      SELECT app_id, '' AS identity, CAST(user_id, 'Nullable(UInt64)') AS user_id FROM merged_identities
    ) AS s
    LEFT JOIN merged_identities AS m ON s.app_id = m.app_id AND s.user_id = m.user_id
  )
  GROUP BY app_id, identity, anonymous_id
) AS u
LEFT JOIN merged_user_properties AS p
  ON u.app_id = p.app_id AND u.identity = p.identity AND ifNull(u.anonymous_id, 0) = ifNull(p.anonymous_id, 0)
