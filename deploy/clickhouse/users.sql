-- The two users of Sluice on your own ClickHouse server, with the same rights as on the embedded one. Insert your passwords, and your
-- database if CLICKHOUSE_DATABASE names another one, and run this as an administrator:
--   clickhouse client --multiquery < users.sql
-- The service connects as `sluice` (CLICKHOUSE_URL=http://sluice:PASSWORD@HOST:8123); people and tools as `reader`.
CREATE USER IF NOT EXISTS sluice IDENTIFIED WITH sha256_password BY 'CHANGE ME';
CREATE USER IF NOT EXISTS reader IDENTIFIED WITH sha256_password BY 'CHANGE ME TOO' SETTINGS readonly = 2, enable_join_runtime_filters_index_analysis = 1, apply_deleted_mask = 1 READONLY;
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice.* TO sluice;
-- The tables of each round of deletions, export or retention run are in this database, in memory.
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice_scratch.* TO sluice;
-- A backup is restored into this database before it replaces the other one.
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice_restore.* TO sluice;
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice_restore_scratch.* TO sluice;
-- To end a long rewriting of parts at once.
GRANT SYSTEM MERGES ON sluice.* TO sluice;
GRANT TABLE ENGINE ON MergeTree TO sluice;
GRANT TABLE ENGINE ON ReplacingMergeTree TO sluice;
GRANT TABLE ENGINE ON Memory TO sluice;
GRANT TABLE ENGINE ON Join TO sluice;
GRANT TABLE ENGINE ON Set TO sluice;
-- For null(…): the service makes ClickHouse parse rows into it, to find the rows that ClickHouse refuses.
GRANT CREATE TEMPORARY TABLE ON *.* TO sluice;
GRANT SELECT ON system.backups TO sluice;
GRANT SELECT ON system.detached_parts TO sluice;
GRANT SELECT ON system.disks TO sluice;
GRANT SELECT ON system.merges TO sluice;
GRANT SELECT ON system.mutations TO sluice;
GRANT SELECT ON system.parts TO sluice;
GRANT SELECT ON system.processes TO sluice;
-- The audit log only grows.
REVOKE ALTER UPDATE, ALTER DELETE, TRUNCATE ON sluice.audit_log FROM sluice;
-- Only with several servers, which read each other's tables:
-- GRANT TABLE ENGINE ON Distributed TO sluice;
-- GRANT REMOTE ON *.* TO sluice;
-- GRANT SELECT ON system.clusters TO sluice;
-- People and tools read the tables described on the page for analysts, and the tables behind their views.
GRANT SELECT ON sluice.events TO reader;
GRANT SELECT ON sluice.user_events TO reader;
GRANT SELECT ON sluice.users TO reader;
GRANT SELECT ON sluice.user_properties TO reader;
GRANT SELECT ON sluice.user_identities TO reader;
GRANT SELECT ON sluice.failed_events TO reader;
GRANT SELECT ON sluice.ledger TO reader;
GRANT SELECT ON sluice.audit_log TO reader;
GRANT SELECT ON sluice.stored_events TO reader;
GRANT SELECT ON sluice.stored_user_properties TO reader;
GRANT SELECT ON sluice.stored_user_identities TO reader;
GRANT SELECT ON sluice.merged_identities TO reader;
GRANT SELECT ON sluice.merged_user_properties TO reader;
GRANT SELECT ON sluice.local_events TO reader;
GRANT SELECT ON sluice.local_user_events TO reader;
GRANT SELECT ON sluice.local_users TO reader;
GRANT SELECT ON sluice.local_user_properties TO reader;
GRANT SELECT ON sluice.local_user_identities TO reader;
GRANT SELECT ON sluice.local_merged_identities TO reader;
GRANT SELECT ON sluice.local_merged_user_properties TO reader;
-- A property's text as a number, or NULL if it is not a number: sum(number(properties['amount'])).
CREATE FUNCTION IF NOT EXISTS number AS (value) -> toFloat64OrNull(value);
