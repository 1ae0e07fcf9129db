-- Finds identities that look like a given one without reading everybody's: a Bloom filter of each granule's plain forms
-- (src/clickhouse/plain-form.ts) that differ from their identity. No bytes where all identities are written in lower case,
-- else up to 1.9 an event, and 0.05 to 0.15 µs of CPU. Parts that are there get it in the background; until then they are read
-- as before.
ALTER TABLE stored_events {{on_cluster}}
  ADD INDEX IF NOT EXISTS by_plain_form
    if(lowerUTF8(trim(BOTH ' \t\n\v\f\r' FROM identity)) = identity, ' ', lowerUTF8(trim(BOTH ' \t\n\v\f\r' FROM identity)))
    TYPE bloom_filter(0.001),
  MATERIALIZE INDEX by_plain_form
