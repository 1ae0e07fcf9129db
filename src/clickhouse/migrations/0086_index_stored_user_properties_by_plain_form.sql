-- Finds identities that look like a given one, as in stored_events.
ALTER TABLE stored_user_properties {{on_cluster}}
  ADD INDEX IF NOT EXISTS by_plain_form
    if(lowerUTF8(trim(BOTH ' \t\n\v\f\r' FROM identity)) = identity, ' ', lowerUTF8(trim(BOTH ' \t\n\v\f\r' FROM identity)))
    TYPE bloom_filter(0.001),
  MATERIALIZE INDEX by_plain_form
