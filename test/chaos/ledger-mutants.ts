// Mutants for the ledger: services that sometimes lose, double or misplace a record, or count wrongly. The ledger alone must find each.

import type { Mutant } from './mutants.js';

const commit = 'src/redis/commit-3.lua';
const stamps = 'src/clickhouse/stamps.js';
const store = 'workers/store.js';
const copyRow = 'length += segment.copy(stamped, length, from, stampBytes === 0 ? to : to - 1);';
const copyStamps = 'length += segment.copy(stamped, length, stampsFrom, stampsTo);';
/** True for one row in 50,000. */
const isTurn = 'rows > 0 && (globalThis.turns = (globalThis.turns ?? 0) + 1) % 50_000 === 0';
/** True for one segment in ten. */
const isSegment = '(globalThis.turns = (globalThis.turns ?? 0) + 1) % 10 === 5';

export const ledgerMutants: readonly Omit<Mutant, 'faults' | 'shows'>[] = [
  {
    name: 'drops the last row of a commit',
    patches: [
      [
        commit,
        'local rows = rows_to_append(rows_of)',
        "local rows = rows_to_append(rows_of)\n  if commits % 20 == 7 then rows = string.match(rows, '^(.*\\n).*\\n$') or rows end",
      ],
    ],
  },
  {
    name: 'drops one row in 50,000 on its way to ClickHouse',
    patches: [[stamps, copyRow, `if (${isTurn}) { from = to; continue; }\n${copyRow}`]],
  },
  {
    name: 'doubles one row in 50,000',
    patches: [
      [
        stamps,
        copyStamps,
        `${copyStamps}\n const again = to - 1 - from + stampsTo - stampsFrom;\n if (${isTurn} && length + again <= stamped.length) { stamped.copy(stamped, length, length - again, length); length += again; }`,
      ],
    ],
  },
  {
    name: 'gives one row in 50,000 to another environment',
    patches: [
      [
        stamps,
        copyRow,
        `${copyRow}\n if (${isTurn}) { const at = length - (to - 1 - from) + 3; stamped[at] = stamped[at] === 0x39 ? 0x30 : stamped[at] + 1; }`,
      ],
    ],
  },
  {
    name: 'forgets a segment that was not stored',
    patches: [
      [
        store,
        "crash('segment_read');",
        `crash('segment_read');\nif (${isSegment}) return forget(options, segment, 'found');`,
      ],
    ],
  },
  {
    name: 'takes an insert for made',
    patches: [
      [
        store,
        'await insertSegment(clickhouse, segment, stamped.bytes, tokenOf(name, bytes, burnt), isExempt);',
        `if (${isSegment}) return forget(options, segment, 'stored');\nawait insertSegment(clickhouse, segment, stamped.bytes, tokenOf(name, bytes, burnt), isExempt);`,
      ],
    ],
  },
  {
    name: 'inserts a segment twice',
    patches: [
      [
        store,
        "crash('after_insert');",
        `crash('after_insert');\nif (${isSegment}) await insertSegment(clickhouse, segment, stamped.bytes, tokenOf(name, bytes, 1_000), isExempt);`,
      ],
    ],
  },
  {
    name: 'stores half of a segment',
    patches: [
      [
        stamps,
        'stamped.subarray(0, length), rows',
        'stamped.subarray(0, rows > 500 ? stamped.indexOf(0x0a, length >> 1) + 1 : length), rows',
      ],
    ],
  },
  {
    name: 'forgets the next segment too',
    patches: [
      [
        'src/redis/forget-4.lua',
        "redis.call('UNLINK', segment_key)",
        "redis.call('UNLINK', segment_key)\nif redis.call('ZCARD', segments_key) > 0 and redis.call('HINCRBY', state_key, 'turns', 1) % 3 == 0 then redis.call('ZPOPMIN', segments_key) end",
      ],
    ],
  },
  {
    name: 'reads segments that are open',
    patches: [
      ['src/redis/seal-2.lua', 'if not open_members[member] and #sealed < list_max', 'if #sealed < list_max'],
    ],
  },
  {
    name: 'stores repeats',
    patches: [
      [
        commit,
        "if letter == 's' then\n    if not skipped",
        "if letter == 'r' then keep(rows_of, bytes, records) end\n  if letter == 's' then\n    if not skipped",
      ],
    ],
  },
  {
    name: 'counts repeats as accepted',
    patches: [[commit, "r = 'repeated'", "r = 'accepted'"]],
  },
  {
    name: 'counts suppressed records as accepted',
    patches: [
      [commit, "k = 'suppressed'", "k = 'accepted'"],
      [commit, "local is_logged = letter == 's'", "local is_logged = letter == 'k' or letter == 's'"],
    ],
  },
  {
    name: 'counts a record of one environment for another',
    patches: [
      [commit, 'environments[math.floor(place / #tables) + 1]', 'environments[#environments]'],
      [
        commit,
        'block[#block + 1] = counts',
        "block[#block + 1] = string.gsub(counts, '^%d+', environments[1])",
      ],
    ],
  },
  {
    name: 'forgets what a minute had counted before',
    patches: [
      [
        commit,
        "call('APPEND', string.format('%sledger_log:%d'",
        "call('SET', string.format('%sledger_log:%d'",
      ],
    ],
  },
  {
    name: 'counts what it keeps twice',
    patches: [
      [
        commit,
        'block[#block + 1] = counts',
        'block[#block + 1] = string.rep(counts, now_us % 5 == 0 and 2 or 1)',
      ],
    ],
  },
  {
    name: 'loses an entry on its way to ClickHouse',
    patches: [
      [
        'src/insights/ledger/write.js',
        'await writeLedger(clickhouse, some);',
        'await writeLedger(clickhouse, some.slice(1));',
      ],
    ],
  },
  {
    name: 'skips the booking of a deletion',
    patches: [
      ['workers/round/remove.js', "await recordTaken(clickhouse, table, noted, 'deleted', from);", ''],
    ],
  },
  {
    name: 'deletes more than it books',
    patches: [
      [
        'workers/round/remove.js',
        '(clickhouse, table, removal);',
        `(clickhouse, table, table === 'stored_events' ? { condition: '(' + removal.condition + ") OR app_id != '' AND row_number = 7", mark: removal.mark } : removal);`,
      ],
    ],
  },
  {
    name: 'counts a masked row',
    patches: [
      [
        'src/insights/ledger/balance.js',
        'clickhouse_settings: { max_threads: 1,',
        "clickhouse_settings: { ...(term === 'stored' ? { apply_deleted_mask: 0 } : {}), max_threads: 1,",
      ],
      ['workers/round/remove.js', '<= options.erasure.atOnceBytesMax', '< 0'],
      ['workers/erase.js', 'if (bytes === 0 ||', 'if (true ||'],
    ],
  },
];
