-- The two users of Sluice on a ClickHouse server of your own, with the same rights as on the embedded one. Put your
-- passwords in, and your database if CLICKHOUSE_DATABASE names another one, and run it as an administrator:
--   clickhouse client --multiquery < users.sql
-- The service connects as `sluice` (CLICKHOUSE_URL=http://sluice:PASSWORD@HOST:8123); people and tools as `reader`.
CREATE USER IF NOT EXISTS sluice IDENTIFIED WITH sha256_password BY 'CHANGE ME';
CREATE USER IF NOT EXISTS reader IDENTIFIED WITH sha256_password BY 'CHANGE ME TOO' SETTINGS readonly = 2;
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice.* TO sluice;
-- The tables of one round of deletions, export or run are in this database, in memory.
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice_scratch.* TO sluice;
-- A backup is restored into this database before it takes the place of the other one.
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice_restore.* TO sluice;
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice_restore_scratch.* TO sluice;
GRANT TABLE ENGINE ON MergeTree TO sluice;
GRANT TABLE ENGINE ON ReplacingMergeTree TO sluice;
GRANT TABLE ENGINE ON Memory TO sluice;
GRANT TABLE ENGINE ON Join TO sluice;
GRANT TABLE ENGINE ON Set TO sluice;
-- For null(…): the service has ClickHouse parse rows into it, to find the rows that ClickHouse refuses.
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
GRANT SHOW, SELECT ON sluice.* TO reader;
-- Hashes of keys and passwords, and the deployment's secrets.
REVOKE SELECT ON sluice.registry FROM reader;
