-- What became of the records of each environment, minute by minute. Every row is counted once, where it happens, and written when its
-- minute is over; a repeat of that is the same row. The minute is that in which a record's segment was opened, by Redis's clock, so
-- `segment` says it too; what has no segment belongs to the minute in which it came. No user is in it. Ordered by hours, since a look at all
-- environments reads some minutes, and a chart of one environment a week.
-- Records of the environment: accepted (kept in a segment), repeated, differing (repeats that say something else), suppressed,
-- late_repeats (kept, and recognised before they were stored; detail: the segment), limited, rejected (detail: code and field),
-- mended (detail: the reason), ignored_fields, unauthorized.
-- Of times: expired_to (events accepted before that minute have expired), void (records minutes from this one cannot be balanced;
-- detail: why).
CREATE TABLE IF NOT EXISTS ledger {{on_cluster}}
(
  app_id String COMMENT 'Environment',
  minute DateTime('UTC') COMMENT 'The minute of acceptance',
  kind String COMMENT 'events, user_properties or user_identities; empty for what is counted before that is known',
  term String COMMENT 'What became of the records',
  detail String COMMENT 'More about that',
  records UInt64 COMMENT 'How many'
)
ENGINE = {{engine ReplacingMergeTree(records)}}
PARTITION BY toYYYYMM(minute)
ORDER BY (toStartOfHour(minute), app_id, minute, kind, term, detail)
TTL
  minute + INTERVAL 15 DAY DELETE WHERE term = 'rejected',
  minute + INTERVAL 400 DAY DELETE WHERE term IN ('limited', 'mended', 'ignored_fields', 'unauthorized')
SETTINGS
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_compressed_bytes_to_fsync_after_merge = 1
COMMENT 'Records by environment, minute and what became of them; read it with FINAL'
