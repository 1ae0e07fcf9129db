-- One row a merged user: whoever appears in an event, a call for properties or an identification. A record has an identity or
-- a user_id, so an identified user's ids are the ones of identifications. That is why nothing of the first half is joined: a filter
-- on identity reaches the tables and their indexes, and leaves nothing of the second half to read.
CREATE VIEW IF NOT EXISTS users {{on_cluster}}
(
  app_id String COMMENT 'Environment',
  identity String COMMENT 'The identity; empty for an anonymous user. A filter on it is fast',
  user_ids Array(UInt64) COMMENT 'The anonymous user, or the anonymous users that were identified as this one',
  email String COMMENT 'The property email; empty if the user has none',
  properties Map(String, String) COMMENT 'Of each property the latest value, as text',
  person String COMMENT 'The identity, or else the user_id as text: as in user_events'
)
COMMENT 'One row per merged user. Without a filter on identity it reads the users of all events of an environment' AS
SELECT
  u.app_id AS app_id,
  u.identity AS identity,
  u.user_ids AS user_ids,
  p.properties['email'] AS email,
  p.properties AS properties,
  u.person AS person
FROM
(
  SELECT
    app_id,
    identity,
    CAST(NULL, 'Nullable(UInt64)') AS anonymous_id,
    arraySort(groupUniqArrayIf(assumeNotNull(id), id IS NOT NULL)) AS user_ids,
    identity AS person
  FROM
  (
    SELECT app_id, identity, CAST(NULL, 'Nullable(UInt64)') AS id FROM events WHERE identity != ''
    UNION ALL
    SELECT app_id, identity, CAST(NULL, 'Nullable(UInt64)') AS id FROM user_properties WHERE identity != ''
    UNION ALL
    SELECT app_id, merged_identity AS identity, CAST(user_id, 'Nullable(UInt64)') AS id FROM merged_identities
  )
  GROUP BY app_id, identity
  UNION ALL
  SELECT
    s.app_id AS app_id,
    '' AS identity,
    CAST(s.id, 'Nullable(UInt64)') AS anonymous_id,
    [s.id] AS user_ids,
    toString(s.id) AS person
  FROM
  (
    SELECT DISTINCT app_id, assumeNotNull(user_id) AS id
    FROM
    (
      SELECT app_id, user_id FROM events WHERE user_id IS NOT NULL
      UNION ALL
      SELECT app_id, user_id FROM user_properties WHERE user_id IS NOT NULL
    )
  ) AS s
  LEFT ANTI JOIN merged_identities AS m ON s.app_id = m.app_id AND s.id = m.user_id
) AS u
LEFT JOIN merged_user_properties AS p
  ON u.app_id = p.app_id AND u.identity = p.identity AND ifNull(u.anonymous_id, 0) = ifNull(p.anonymous_id, 0)
