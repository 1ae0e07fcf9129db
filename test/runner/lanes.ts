// Which test files run side by side, and which run when: in `test:quick`, in `npm test`, or only in `test:all`. This is the only place that says it. Most files
// wait for most of their time, so more run at once than the two cores that they are meant for; schedule.ts looks at the CPU
// that each takes.

/** How many files run at most while one of the lane does, itself included. */
export const filesAtOnce = { usual: 9, alone: 1 } as const;

export type Lane = keyof typeof filesAtOnce;

/**
 * These measure a latency or a rate, or give the machine other networks for a while: a browser then ends requests of its
 * pages (net::ERR_NETWORK_CHANGED).
 */
const alone: readonly string[] = ['bench-load', 'body-attacks', 'http-fuzz', 'take-over'];

/** These need no deployment, and take half a minute together. */
const quick: readonly string[] = [
  'account-bounds',
  'bench-compare',
  'bench-histogram',
  'bench-report',
  'caller-address',
  'chaos-checker',
  'claim-window',
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
  'commit-pause',
  'commit-script',
  'deletion-round-choice',
  'deploy-compose',
  'deploy-kubernetes',
  'deploy-systemd',
  'faults-checker',
  'free-port',
  'hot-histogram',
  'imports',
  'local-log',
  'local-setup',
  'local-unpack',
  'long-work',
  'people-places',
  'places',
  'plain-events',
  'fingerprint',
  'queues',
  'request-faults',
  'servers-away',
  'soak-tool',
  'stamps',
  'suppression-bounds',
  'tcp-proxy',
  'test-runner',
  'tool-options',
  'user-list',
  'visualizer-pairings',
  'zones',
];

/** These test the tools of developers, or repeat with other timing what another file tries. Only `test:all` has them. */
const thorough: readonly string[] = [
  'bench-load',
  'bench-lost-event',
  'bench-outside',
  'chaos-crash-repeats',
  'chaos-rounds',
  'fuzz-tool',
  'ledger-mutants',
];

export function laneOf(path: string): Lane {
  return alone.includes(nameOf(path)) ? 'alone' : 'usual';
}

/** How many seconds a file may take: several times what it takes on a quiet machine. */
export function secondsMaxOf(path: string): number {
  return ['chaos-crash-points', 'ledger-mutants'].includes(nameOf(path)) ? 3_600 : 1_200;
}

export function isQuick(path: string): boolean {
  return quick.includes(nameOf(path));
}

export function isThorough(path: string): boolean {
  return thorough.includes(nameOf(path));
}

/** All that are named here, for the test that they exist. */
export function namedFiles(): string[] {
  return [...alone, ...quick, ...thorough];
}

/** The name without folder and ending, so that a file keeps its lane when it moves. */
export function nameOf(path: string): string {
  return path.replace(/^.*\//, '').replace(/\.test\.[jt]s$/, '');
}
