-- What the user `sluice` needs besides users.sql where its tables are on replicas (CLICKHOUSE_TABLES=replicated). Run it as an
-- administrator, on every server unless users are replicated too:
--   clickhouse client --multiquery < replicas.sql
GRANT TABLE ENGINE ON ReplicatedMergeTree TO sluice;
GRANT TABLE ENGINE ON ReplicatedReplacingMergeTree TO sluice;
GRANT SELECT ON system.replicas TO sluice;
-- Tables are created, synced and dropped on all replicas.
GRANT CLUSTER ON *.* TO sluice;
GRANT SYSTEM SYNC REPLICA ON sluice.* TO sluice;
-- The service looks for markers, running inserts and mutations on all replicas. This right reaches other servers too.
GRANT REMOTE ON *.* TO sluice;
