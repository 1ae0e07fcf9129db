-- Takes the text of the refused rows that are there and name nobody. Markers have no table_name and stay. In the background:
-- a few rows; rows that were emptied before are not touched again.
ALTER TABLE failed_events {{on_cluster}}
  UPDATE
    text_bytes = toUInt32(length(row)),
    text_hash = lower(hex(SHA256(row))),
    event_id = extract(row, '^\\["[0-9]+","([0-9a-f]{32})"'),
    user_id = NULL,
    identity = '',
    row = ''
  WHERE table_name != '' AND row != '' AND (match(app_id, '^[0-9]+$') = 0 OR (identity = '' AND user_id IS NULL))
