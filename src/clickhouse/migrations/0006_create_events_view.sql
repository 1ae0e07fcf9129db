-- Events without marker rows. A filter on app_id, event and time reaches the primary key through it.
CREATE VIEW IF NOT EXISTS events {{on_cluster}} AS
SELECT * FROM stored_events WHERE app_id != ''
