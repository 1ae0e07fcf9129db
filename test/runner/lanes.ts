// Says which test files run side by side, and whether they run in `test:quick`, in `npm test`, or only in `test:all`. Most files mostly
// wait, so more files than cores run at once; schedule.ts takes account of the CPU time of each.

/** How many files run at most while one of this lane does, including that one. */
export const filesAtOnce = { usual: 9, alone: 1 } as const;

export type Lane = keyof typeof filesAtOnce;

/**
 * Files that measure a latency or a rate, or that change the machine's networks for a while, at which browsers abort requests
 * (net::ERR_NETWORK_CHANGED).
 */
const alone: readonly string[] = ['bench-load', 'body-attacks', 'deletion-time', 'http-fuzz', 'take-over'];

/** Files that need no deployment, and together take half a minute. */
const quick: readonly string[] = [
  'account-bounds',
  'caller-address',
  'chaos-checker',
  'claim-window',
  'clickhouse-connections',
  'client-faults',
  'client-first-visit',
  'client-hostile-page',
  'client-life',
  'client-mobile',
  'client-mobile-pairing',
  'client-mobile-storage',
  'client-operations',
  'client-retries',
  'client-sanitize',
  'client-script',
  'client-sending',
  'client-tabs',
  'client-types',
  'client-web',
  'client-web-sending',
  'client-web-storage',
  'command-line',
  'commit-script',
  'committer',
  'concurrency',
  'console-words',
  'deletion-round-choice',
  'deploy-compose',
  'deploy-kubernetes',
  'deploy-systemd',
  'fingerprint',
  'hot-histogram',
  'imports',
  'local-log',
  'local-setup',
  'long-work',
  'people-places',
  'plain-events',
  'queues',
  'request-faults',
  'servers-away',
  'stamps',
  'suppression-bounds',
  'test-runner',
  'user-list',
  'visualizer-pairings',
  'zones',
];

/**
 * Files that run only in `test:all`: they test tools of developers, or repeat what the files named beside them test, with other timing, in
 * another layout or at other crash points.
 */
const thorough: readonly string[] = [
  'backups-and-moves', // moves, clickhouse-servers, restore-beside-others
  'bench-histogram',
  'bench-load',
  'bench-lost-event',
  'bench-outside',
  'bench-report',
  'body-attacks', // large-document, body-room, track-framing
  'chaos-crash-losses', // deletion-crash, deployment
  'chaos-crash-points', // faults-processes, deletion-crash, deletion-desk, store, key-index
  'chaos-rounds',
  'client-browser-sending', // client-tabs, client-life
  'collect-deletion', // deletion
  'deletion-budget', // deletion-hidden
  'deletion-hidden-servers', // deletion-hidden
  'deletion-passes', // deletion-hidden
  'demo',
  'deploy-image',
  'faults-checker',
  'faults-redis-contents', // store, compress-waiting, commit-script
  'free-port',
  'fuzz-tool',
  'http-fuzz', // track-framing, nesting
  'identity-model', // identify, everywhere
  'libraries', // segment
  'local-redis-nodes', // local-start, redis-take-over
  'redis-cluster-take-over', // redis-take-over
  'redis-cut-off', // take-over, former-primary
  'soak-tool',
  'suppression-histories', // suppression, suppressed-names
  'tool-options',
];

/** Beginnings of the names of single such tests. They repeat other tests of their file, or of the files named beside them. */
const thoroughTests: Readonly<Record<string, readonly string[]>> = {
  backup: [
    'a filter of keys that a worker loads', // key-index
    'continues although Redis is emptied after', // restore-beside-others
  ],
  'client-browser-page': ['the policy for a snippet'],
  'clickhouse-servers': [
    'a move that is copying can be reverted', // moves
    'a server that hangs',
    'restores servers that are empty',
  ],
  console: ['sets up a second factor'], // desk, sign-in
  'console-data': ['axe finds nothing on any page, wide'],
  deletion: ['leaves nothing behind when a worker'],
  'deletion-crash': [
    'completes a deletion exactly when the worker is killed at',
    'completes a deletion exactly when ClickHouse is killed before rows are taken out of stored_user_identities',
    'completes a deletion exactly when ClickHouse is killed before rows are taken out of deletion_targets',
    'completes a deletion after Redis was emptied',
    'completes a verified deletion after Redis is emptied, even if its targets are gone and',
  ],
  'deletion-evidence': [
    'a dry run is answered however many', // concurrency, like the next one
    'hundreds of requests of one account',
  ],
  'deletion-hidden': ['a request for users who are hidden already', 'exports go on while a hidden'],
  'deletion-rounds': [
    'requests reach the same users while rounds',
    'many requests that name one user', // 'a round takes memory for its lists', like the next one
    'a user_id that many requests name',
    'lists of long names', // user-export, pending-lists
    'a deletion is complete within 10 s when the worker that stores',
  ],
  'deploy-monitoring': ['the tests of the rules'], // alerting
  'faults-disk': ['loses only what was not synced'],
  'full-disk': ['a deletion on a full disk (ext4)'],
  'faults-processes': [
    'stores every acknowledged event once when all workers are', // 'everything is killed at once'
    'stores every acknowledged event once when Redis is', // faults-disk
  ],
  'key-index': ['after random actions'],
  ledger: ['show what is lost'], // ledger-balance
  'local-start': [
    'a start waits for one',
    'everything stops when npm',
    'two API processes and two workers',
    'children of a killed start',
  ],
  moves: ['before a move changes a server', 'a server that a move opens late, when the shard has moved back'],
  packages: ['by TypeScript under node16', 'by TypeScript under nodenext'],
  proxies: ['the bench loads it by TLS'],
  'redis-cluster': [
    'takes and stores the records',
    'loses and doubles nothing when the master of two shards',
  ],
  'redis-take-over': [
    'a frozen primary',
    'a primary that goes on in the middle',
    'a primary that somebody has replaced',
    'two take-overs in a row',
  ],
  'restore-beside-others': [
    'restores months and an index', // backup, like the next one
    'frees no key that a worker indexes',
    'a restore that was paused exchanges nothing',
    'a restore that was paused before it began',
    'a restore that was paused before it dropped',
    'a restore that was paused before the first exchange',
    'a restore continues if somebody drops the DATABASE', // the same with a table
    'a restore begins again if somebody drops the TABLE', // the same with the database
  ],
  suppression: ['writes the copy of an account with many'], // suppression-bounds
  'test-runner': [
    'passes when all tests do',
    'fails for a file that ends',
    'has temporary folders',
    'ends a file that hangs',
    'when interrupted',
  ],
  'user-export': ['an archive of many records', 'a deletion of the user ends a download'],
};

export function laneOf(path: string): Lane {
  return alone.includes(nameOf(path)) ? 'alone' : 'usual';
}

/** How many seconds a file may take, which is several times what it takes on a quiet machine. */
export function secondsMaxOf(path: string): number {
  return nameOf(path) === 'chaos-crash-points' ? 3_600 : 1_200;
}

export function isQuick(path: string): boolean {
  return quick.includes(nameOf(path));
}

export function isThorough(path: string): boolean {
  return thorough.includes(nameOf(path));
}

/** Whether this process belongs to `npm test`, which sets the variable. */
export const isUsualTier = process.env.TEST_TIER === 'usual';

/** Whether this process leaves a test of this file out. */
export function leavesOut(path: string, test: string, isUsual = isUsualTier): boolean {
  const starts = thoroughTests[nameOf(path)] ?? [];
  return isUsual && starts.some((start) => test.startsWith(start));
}

/** The files of which `npm test` leaves out tests, with the beginnings of their names. */
export function partlyThorough(): readonly (readonly [name: string, starts: readonly string[]])[] {
  return Object.entries(thoroughTests);
}

/** All files that are named here, for the test that they exist. */
export function namedFiles(): string[] {
  return [...alone, ...quick, ...thorough, ...Object.keys(thoroughTests)];
}

/** The name without folder and ending, so that a file keeps its lane when it moves. */
export function nameOf(path: string): string {
  return path.replace(/^.*\//, '').replace(/\.test\.[jt]s$/, '');
}
