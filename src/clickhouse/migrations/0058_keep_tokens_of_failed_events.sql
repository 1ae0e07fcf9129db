-- On replicas tokens are in the keeper, which by default forgets when they are an hour older than the newest; the window of 100,000 is
-- seven hours of four inserts a second. Only the description of the table changes; tables of one server heed the window alone.
ALTER TABLE failed_events {{on_cluster}} MODIFY SETTING replicated_deduplication_window_seconds = 604800
