-- The ledger has what was in it.
DROP TABLE IF EXISTS minute_counts {{on_cluster}} SYNC
