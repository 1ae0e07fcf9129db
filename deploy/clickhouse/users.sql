-- The two users of Sluice on a ClickHouse server of your own, with the rights that the embedded one gives them. Run it
-- as an administrator, with passwords and, if CLICKHOUSE_DATABASE says so, the database of your own:
--   clickhouse client --multiquery < users.sql
-- The service connects as `sluice` (CLICKHOUSE_URL=http://sluice:PASSWORD@HOST:8123); people and tools as `reader`.
CREATE USER IF NOT EXISTS sluice IDENTIFIED WITH sha256_password BY 'CHANGE ME';
CREATE USER IF NOT EXISTS reader IDENTIFIED WITH sha256_password BY 'CHANGE ME TOO' SETTINGS readonly = 2;
GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON sluice.* TO sluice;
GRANT TABLE ENGINE ON MergeTree TO sluice;
GRANT TABLE ENGINE ON ReplacingMergeTree TO sluice;
GRANT TABLE ENGINE ON Memory TO sluice;
GRANT TABLE ENGINE ON Join TO sluice;
GRANT TABLE ENGINE ON Set TO sluice;
-- For null(…), into which rows are parsed to see which of them ClickHouse refuses.
GRANT CREATE TEMPORARY TABLE ON *.* TO sluice;
GRANT SELECT ON system.backups TO sluice;
GRANT SELECT ON system.merges TO sluice;
GRANT SELECT ON system.mutations TO sluice;
GRANT SELECT ON system.parts TO sluice;
GRANT SELECT ON system.processes TO sluice;
GRANT SHOW, SELECT ON sluice.* TO reader;
