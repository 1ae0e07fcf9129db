-- The ledger has what was in it.
DROP TABLE IF EXISTS minute_rejections {{on_cluster}} SYNC
