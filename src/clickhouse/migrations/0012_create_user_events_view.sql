-- Events with the identity and the properties that their merged user has now.
CREATE VIEW IF NOT EXISTS user_events {{on_cluster}} AS
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
  p.properties AS user_properties
FROM
(
  SELECT
    s.app_id AS app_id,
    s.event_id AS event_id,
    s.event AS event,
    s.user_id AS user_id,
    if(s.identity != '', s.identity, ifNull(m.merged_identity, '')) AS identity,
    s.session_id AS session_id,
    s.time AS time,
    s.received_at AS received_at,
    s.properties AS properties
  FROM events AS s
  LEFT JOIN merged_identities AS m ON s.app_id = m.app_id AND s.user_id = m.user_id
) AS e
LEFT JOIN merged_user_properties AS p
  ON e.app_id = p.app_id AND e.identity = p.identity
  AND if(e.identity = '', ifNull(e.user_id, 0), 0) = ifNull(p.anonymous_id, 0)
