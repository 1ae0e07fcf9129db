// Mutants for the checker: services that break one promise each, which the checker must report. Every mutant is a patched copy of the
// compiled service. A patch whose text is not found throws, since the mutant would then prove nothing.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import type { Layout } from './deployment.js';

/** The text to find in a file, which is there once, and the text in its place. */
type Patch = readonly [file: string, find: string, replacement: string];

export type Mutant = {
  readonly name: string;
  readonly patches: readonly Patch[];
  /** The layout on which it runs; `one` by default. */
  readonly layout?: Layout;
  /** The faults under which it breaks its promise. */
  readonly faults: readonly string[];
  /** The checker must report at least one of these kinds of broken promises. */
  readonly shows: readonly string[];
};

const commit = 'src/redis/commit-3.lua';
const store = 'workers/store.js';
const eventsTable = 'src/clickhouse/migrations/0002_create_stored_events.sql';
const eventsView = 'src/clickhouse/migrations/0017_create_events_view.sql';

const moveRows = 'src/clickhouse/move-rows.js';
const replicas = 'src/redis/replicas.js';
/** Lets workers seal and store what only a cut-off primary has. Else the replicas' confirmation hides what the other patches break. */
const storesWithoutReplicas: readonly Patch[] = ['tick-4', 'take-turn-1', 'keep-turn-1'].map((script) => [
  'src/redis/scripts.js',
  `confirmed('${script}')`,
  `load('${script}')`,
]);

export const mutants: readonly Mutant[] = [
  {
    name: 'drops one in a thousand',
    patches: [
      [
        commit,
        'if not skipped then\n      keep(rows_of, bytes, records)',
        // This drops runs of records, of which there are fewer than records: one in a thousand would be too few.
        'if not skipped then\n      if (now_us + rows_of.at) % 300 > 0 then keep(rows_of, bytes, records) end',
      ],
    ],
    faults: ['script flush'],
    shows: ['lost'],
  },
  {
    name: 'inserts twice',
    patches: [
      [
        store,
        'stamped.bytes, tokenOf(name, bytes, burnt)',
        'stamped.bytes, tokenOf(name, bytes, Math.random())',
      ],
      [store, 'if (checksMarker && (await isStored(clickhouse, name)))', 'if (false)'],
    ],
    faults: ['answers of inserts lost'],
    shows: ['doubled'],
  },
  {
    name: 'claims before appending',
    patches: [
      [
        commit,
        "if backlog_bytes + bytes_to_come > backlog_bytes_max then return 'o' end\n",
        'local full = backlog_bytes + bytes_to_come > backlog_bytes_max\n',
      ],
      [
        commit,
        '-- 6. Write: rows first',
        "if #changed > 0 then write_fields(claims_key, changed) end\nif full then return 'o' end\n-- 6. Write: rows first",
      ],
    ],
    faults: ['full backlog', 'full backlog'],
    shows: ['lost', 'not the first'],
  },
  {
    name: 'seals without atomicity',
    patches: [
      ['src/redis/tick-4.lua', 'if not open_members[member] and #sealed < list_max', 'if #sealed < list_max'],
    ],
    faults: ['script flush'],
    shows: ['lost', 'not drained'],
  },
  {
    name: 'skips the fence',
    patches: [
      [
        'src/privacy/deletion/choose-requests.js',
        'itsShards.length > 0 && itsShards.every((shard) => isStoredIn(request, shard))',
        'true',
      ],
      // A slow worker makes a backlog that can be skipped, and rounds begin at once.
      [store, "crash('before_insert');", 'await new Promise((go) => setTimeout(go, 1_500));'],
      ['workers/delete.js', '!(await takeTurn(...turn))', 'false'],
    ],
    faults: ['script flush', 'late insert', 'script flush'],
    shows: ['resurrected'],
  },
  {
    name: 'deletes beyond the fence',
    patches: [
      ['src/privacy/deletion/round-keys.js', '} >= segment)', '} > 0)'],
      ['src/privacy/deletion/round-keys.js', 'AND segment <= $', 'AND segment < 9 * $'],
    ],
    faults: ['clickhouse slow', 'script flush'],
    shows: ['over-deleted'],
  },
  {
    name: 'sees what an earlier deletion takes',
    patches: [
      [
        'src/privacy/deletion/resolve-users.js',
        'const waiting = sharesAccount(open, accounts)',
        'const waiting = false',
      ],
    ],
    faults: ['script flush', 'clickhouse slow', 'script flush'],
    shows: ['over-deleted'],
  },
  {
    name: 'takes an emptied Redis for one without deletions',
    patches: [
      ['src/privacy/deletion/request.js', 'found !== epoch', 'false'],
      // Otherwise another check, which sees the same, ends the upkeep first.
      [
        'workers/second-copies.js',
        '() => copyChanges(redis, clickhouse, { crash })',
        '() => purgeStrays(context), () => copyChanges(redis, clickhouse, { crash })',
      ],
    ],
    faults: Array(3).fill('redis emptied while a deletion is pending'),
    shows: ['targets lost'],
  },
  {
    name: 'forgets keys of outstanding segments',
    patches: [[commit, 'state[6] and claim_minute - tonumber(state[6]) or 65535', '-1']],
    faults: ['workers stopped for longer than keys are remembered'],
    shows: ['doubled', 'not the first'],
  },
  {
    name: 'asks nobody about forgotten keys',
    patches: [['workers/late-repeats.js', 'if (forgotten.to === 0n)', 'if (true)']],
    faults: ['keys forgotten by redis'],
    shows: ['doubled', 'not the first'],
  },
  {
    name: 'forgets keys before they are in the index',
    patches: [
      [
        'workers/index-keys.js',
        'await addStep(clickhouse, shard, from, step);',
        'setTimeout(() => addStep(clickhouse, shard, from, step).catch(() => {}), 120_000);',
      ],
    ],
    faults: ['keys forgotten by redis'],
    shows: ['doubled', 'not the first'],
  },
  {
    name: 'adds keys before the insert, without an owner',
    patches: [
      [
        store,
        "crash('before_insert');",
        `const { keysOfRows } = await import('../src/clickhouse/row-keys.js');
        const { count, bytes: ids } = keysOfRows(checked.bytes);
        const added = Array.from({ length: count }, (_, i) => \`(\${ids.readBigUInt64LE(14 * i)}, \${ids.readUIntLE(14 * i + 8, 6)}, 0)\`);
        if (count > 0) await clickhouse.command({ query: \`INSERT INTO stored_keys VALUES \${added.join(',')}\` });`,
      ],
      // Otherwise the worker's filter, which was loaded before, rules out keys that were added since.
      ['workers/late-repeats.js', 'keyFilter?.candidates(found, forgotten) ?? found', 'found'],
    ],
    faults: [
      'keys forgotten by redis',
      'lost replies between worker and clickhouse',
      'kill worker',
      'kill clickhouse',
    ],
    shows: ['lost'],
  },
  {
    name: 'does not sync what it stores',
    patches: [
      [eventsTable, 'fsync_after_insert = 1', 'fsync_after_insert = 0'],
      [eventsTable, 'fsync_part_directory = 1', 'fsync_part_directory = 0'],
    ],
    faults: Array(3).fill('power cut of clickhouse'),
    shows: ['lost'],
  },
  {
    name: 'last wins',
    patches: [
      [
        commit,
        "if not limited then letter = fits and (claimed[next_id] or 's') or claim(next_id) end",
        'if not limited and not fits then claim(next_id) end',
      ],
      [
        eventsView,
        "FROM stored_events WHERE app_id != ''",
        "FROM stored_events WHERE app_id != '' ORDER BY segment DESC, commit_number DESC, row_number DESC LIMIT 1 BY app_id, event_id",
      ],
    ],
    faults: ['script flush'],
    shows: ['not the first'],
  },
  {
    name: 'ignores the limit',
    patches: [[commit, '  if log_used[i] <= left then return 0 end\n', '  do return 0 end\n']],
    faults: Array(6).fill('clickhouse slow'),
    shows: ['limit exceeded'],
  },
  {
    name: 'reuses a number',
    patches: [
      [
        commit,
        'last_number = math.max(last_number + 1, now_us)',
        'last_number = math.floor(now_us / 5000000) * 5000000',
      ],
    ],
    faults: ['script flush'],
    shows: ['lost', 'doubled'],
  },
  {
    name: 'takes what a suppression has overtaken',
    patches: [
      [
        commit,
        "if state[11] and tonumber(state[11]) > suppression_version then return 'v' .. state[11] end",
        '',
      ],
      // Otherwise each process also reads suppressions twice a second, and most callers are too slow to see the fault.
      [
        'src/privacy/suppression/suppressions.js',
        'repeat({ work, everyMs: pollEveryMs,',
        'repeat({ work, everyMs: 60_000,',
      ],
    ],
    faults: ['script flush', 'script flush'],
    shows: ['stored though suppressed'],
  },
  {
    name: 'restores no suppressions',
    patches: [
      [
        'src/privacy/suppression/second-copy.js',
        'const accounts = await readAccounts(clickhouse);',
        'const accounts = [];',
      ],
    ],
    faults: ['redis emptied', 'script flush'],
    shows: ['stored though suppressed'],
  },
  {
    name: 'exports what is stored by then',
    patches: [
      ['src/privacy/export/request.js', 'if (waiting.length === 0)', 'if (true)'],
      // Otherwise the export waits for deletions, and meanwhile all that was accepted before is stored.
      ['src/privacy/export/request.js', 'scores.some((score) => score !== null)', 'false'],
    ],
    faults: ['script flush', 'clickhouse slow'],
    shows: ['missing in an export'],
  },
  {
    name: 'calls nobody after a completion',
    patches: [
      ['src/redis/complete-deletion-8.lua', "if ARGV[4] == '1' then", 'if false then'],
      ['workers/round/finish.js', 'options.onCallbacksDue?.(', '(() => undefined)('],
    ],
    faults: ['script flush'],
    shows: ['not called'],
  },
  {
    name: 'signs calls with another secret',
    patches: [
      [
        'src/privacy/deletion/callback-call.js',
        'signatureOf(secret, body, nowMs())',
        "signatureOf('another', body, nowMs())",
      ],
    ],
    faults: ['script flush'],
    shows: ['wrongly signed'],
  },
  {
    name: 'takes an old copy of Redis for a new one',
    patches: [
      ['src/redis/witness-registry-4.lua', 'if number < tonumber(ARGV[1]) then', 'if false then'],
      ['src/redis/witness-shard-1.lua', 'if number < tonumber(ARGV[2]) then', 'if false then'],
    ],
    faults: ['old copy of redis put back', 'script flush'],
    shows: ['wrong status', 'stored though suppressed', 'doubled'],
  },
  {
    name: 'goes on with an old copy of ClickHouse',
    patches: [
      ['src/registry/witness.js', 'return (parts.get(registry)?.number ?? 0) < kept;', 'return false;'],
    ],
    faults: ['old copy of clickhouse put back', 'script flush'],
    shows: ['lost', 'resurrected'],
  },
  {
    name: 'keeps the keys of what an old copy of ClickHouse lacks',
    patches: [
      [
        'src/redis/free-keys-4.lua',
        "redis.call('UNLINK', KEYS[2], KEYS[2] .. '_apart', KEYS[3], KEYS[4])",
        'if true then return 1 end',
      ],
    ],
    faults: ['old copy of clickhouse put back', 'script flush'],
    shows: ['lost'],
  },
  {
    name: 'trusts a burnt token',
    patches: [[store, 'if (await isStored(clickhouse, name)) {', 'if (true) {']],
    faults: ['tokens burnt', 'tokens burnt'],
    shows: ['lost'],
  },
  {
    name: 'skips a table in passes',
    patches: [
      [
        'workers/erase.js',
        'await beginErasing(client, userTables)',
        'await beginErasing(client, userTables.slice(1))',
      ],
    ],
    faults: ['passes rest'],
    shows: ['not completed', 'left on the disk'],
  },
  {
    name: 'counts without masked rows',
    patches: [
      ['src/privacy/deletion/round-keys.js', 'clickhouse_settings: withMasked', 'clickhouse_settings: {}'],
    ],
    faults: ['passes rest'],
    shows: ['left on the disk'],
  },
  {
    name: 'loses masks in moves',
    layout: 'three',
    patches: [
      [
        moveRows,
        'FORMAT Native`,\n        query_params: { partition },\n        clickhouse_settings: {',
        'FORMAT Native`, query_params: { partition }, clickhouse_settings: { ...withMasked,',
      ],
      // Otherwise the comparison of the copy finds the missing masks.
      [moveRows, 'settings = {}', 'settings = withMasked'],
      [
        moveRows,
        ')`,\n        query_params: { partition },\n        clickhouse_settings: {',
        ')`, query_params: { partition }, clickhouse_settings: { ...withMasked,',
      ],
    ],
    faults: Array(3).fill('shard moved while users are hidden'),
    shows: ['shown though hidden'],
  },
  {
    name: 'stores what only a former primary has',
    layout: 'nodes',
    patches: storesWithoutReplicas,
    faults: Array(3).fill('primary cut off from the other hosts'),
    shows: ['lost', 'doubled'],
  },
  {
    name: 'acknowledges what no replica has',
    layout: 'nodes',
    patches: [[replicas, 'const isConfirmed = found >= demand.replicas;', 'const isConfirmed = true;']],
    faults: Array(2).fill('primary cut off from the other hosts'),
    shows: ['lost'],
  },
  {
    name: 'sends a commit again as another one',
    layout: 'nodes',
    patches: [['src/ingest/attempts.js', 'commitRepeats.inc();', '(args[1] = sequence += 1);']],
    faults: ['primary frozen', 'primary cut off', 'primary frozen'],
    shows: ['doubled'],
  },
  {
    name: 'goes on with what a former primary had open',
    layout: 'nodes',
    patches: [
      ...storesWithoutReplicas,
      ['src/redis/take-over-shard-1.lua', "redis.call('HDEL', KEYS[1], field)", ''],
    ],
    faults: Array(3).fill('primary cut off from the other hosts'),
    shows: ['lost'],
  },
  {
    name: 'gives the numbers of a former primary again',
    layout: 'nodes',
    patches: [
      ...storesWithoutReplicas,
      // Numbers begin at half minutes, so that both primaries begin with the same ones.
      [
        commit,
        'last_number = math.max(last_number + 1, now_us)',
        'last_number = math.max(last_number + 1, math.floor(now_us / 30000000) * 30000000)',
      ],
      [
        'src/redis/take-over-shard-1.lua',
        "redis.call('HSET', KEYS[1], 'last_number', string.format('%.0f', number))",
        '',
      ],
    ],
    faults: Array(3).fill('primary cut off from the other hosts'),
    shows: ['lost', 'doubled'],
  },
];

const dist = fileURLToPath(new URL('../..', import.meta.url));
const root = join(dist, '..');

/** Makes a patched copy of the compiled project; returns its folder. Throws if the text of a patch is not found. */
function applyMutant({ name, patches }: Mutant): string {
  const copy = tempDir('mutant');
  cpSync(dist, join(copy, 'dist'), { recursive: true });
  cpSync(join(root, 'package.json'), join(copy, 'package.json'));
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  for (const patch of patches) {
    const file = join(copy, 'dist', patch[0]);
    writeFileSync(file, patchedText(name, patch, readFileSync(file, 'utf8')));
  }
  // The programs are bundles of these files.
  execFileSync(process.execPath, [join(root, 'deploy/bundle-programs.mjs'), join(copy, 'dist')]);
  return copy;
}

/** Patches the text of a compiled file. Throws unless the patch's text occurs exactly once. */
export function patchedText(
  mutant: string,
  [file, find, replacement]: Patch,
  text = readFileSync(join(dist, file), 'utf8'),
): string {
  if (text.split(find).length !== 2) {
    throw new Error(`mutant "${mutant}": ${file} does not have this text once: ${find}`);
  }
  return text.replace(find, () => replacement);
}

export function commitScriptOf({ name, patches }: Mutant): string | undefined {
  return patches
    .filter(([file]) => file === commit)
    .reduce<string | undefined>((text, patch) => patchedText(name, patch, text), undefined);
}

export type MutantResult = {
  readonly caught: boolean;
  readonly kinds: readonly string[];
  readonly output: string;
};

const attemptsMax = 3;

/** Runs at most three rounds against a mutant, until one reports what the mutant breaks. */
export async function runMutant(mutant: Mutant, seed: number): Promise<MutantResult> {
  const copy = applyMutant(mutant);
  let output = '';
  let kinds: readonly string[] = [];
  const layout = mutant.layout === undefined ? [] : [`--${mutant.layout}`];
  for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
    const main = join(copy, 'dist/test/chaos/main.js');
    const child = spawn(process.execPath, [main, ...layout, '--faults', mutant.faults.join(',')], {
      cwd: copy,
      env: { ...process.env, SEED: String(seed + attempt) },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    await once(child, 'close');
    kinds = [...output.matchAll(/^ {2}([a-z -]+): /gm)].map(([, kind]) => String(kind));
    if (kinds.some((kind) => mutant.shows.includes(kind))) break;
  }
  removeTempDir(copy);
  return { caught: kinds.some((kind) => mutant.shows.includes(kind)), kinds: [...new Set(kinds)], output };
}
