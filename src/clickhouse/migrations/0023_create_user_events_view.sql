-- Events with the identity and the properties that their merged user has now. Events with an identity are not joined with
-- identifications, so that a filter on it reaches their index.
CREATE VIEW IF NOT EXISTS user_events {{on_cluster}}
(
  app_id String COMMENT 'Environment',
  event_id UUID COMMENT 'As in events',
  event String COMMENT 'Name of the event',
  user_id Nullable(UInt64) COMMENT 'The anonymous user with whom the event came; NULL if it came with an identity',
  identity String COMMENT 'The identity that the user of the event has now; empty for an anonymous user',
  session_id String COMMENT 'Session of the user; empty if the event came without one',
  time DateTime64(3, 'UTC') COMMENT 'When it happened: the field timestamp, or else the time of acceptance',
  received_at DateTime64(3, 'UTC') COMMENT 'Time of acceptance',
  properties Map(String, String) COMMENT 'Property values of the event as text',
  user_properties Map(String, String) COMMENT 'The properties that the user has now, as text',
  person String COMMENT 'The merged user: the identity, or else the user_id as text. Count users by it'
)
COMMENT 'One row per event, with the identity and the properties that its user has now' AS
SELECT
  e.app_id AS app_id,
  e.event_id AS event_id,
  e.event AS event,
  e.user_id AS user_id,
  e.identity AS identity,
  e.session_id AS session_id,
  e.time AS time,
  e.received_at AS received_at,
  e.properties AS properties,
  p.properties AS user_properties,
  e.person AS person
FROM
(
  SELECT app_id, event_id, event, user_id, identity, session_id, time, received_at, properties, identity AS person
  FROM events
  WHERE identity != ''
  UNION ALL
  SELECT
    s.app_id AS app_id,
    s.event_id AS event_id,
    s.event AS event,
    s.user_id AS user_id,
    ifNull(m.merged_identity, '') AS identity,
    s.session_id AS session_id,
    s.time AS time,
    s.received_at AS received_at,
    s.properties AS properties,
    if(ifNull(m.merged_identity, '') = '', s.person, ifNull(m.merged_identity, '')) AS person
  FROM (SELECT * FROM events WHERE identity = '') AS s
  LEFT JOIN merged_identities AS m ON s.app_id = m.app_id AND s.user_id = m.user_id
) AS e
LEFT JOIN merged_user_properties AS p
  ON e.app_id = p.app_id AND e.identity = p.identity
  AND if(e.identity = '', ifNull(e.user_id, 0), 0) = ifNull(p.anonymous_id, 0)
