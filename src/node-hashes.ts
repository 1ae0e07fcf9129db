// Tells whether strangers can predict how this Node hashes the keys of objects and Maps. If they can, they can send bodies whose keys all
// have the same hash. Node compares such keys one by one, so parsing a body occupies the process for as long as its sender likes.

import type { Log } from './log.js';

/**
 * The first release of each major version of Node that also hashes keys such as "123" with the seed; package.json requires these.
 * @see https://nvd.nist.gov/vuln/detail/CVE-2026-21717
 */
const hashesByNumber: Readonly<Record<string, readonly [minor: number, patch: number]>> = {
  20: [20, 2],
  22: [22, 2],
  24: [14, 1],
  25: [8, 2],
};

/** Options of V8 that fix the seed. Node takes none of them from NODE_OPTIONS. */
const fixesSeed = /^--(hash-seed|random-seed|no-?randomize-hashes|no-?rehash-snapshot|predictable)(=|$)/;

/** Why the hashes are predictable; undefined if they are not. */
export function predictableHashes(options: readonly string[], version: string): string | undefined {
  const option = options.find((each) => fixesSeed.test(each.replaceAll('_', '-').replace(/^-+/, '--')));
  if (option !== undefined) return `the option ${option}`;
  const [major = 0, minor = 0, patch = 0] = version.replace('v', '').split('.').map(Number);
  const [leastMinor, leastPatch] =
    hashesByNumber[major] ?? (major > 25 ? [0, 0] : [Number.POSITIVE_INFINITY, 0]);
  const isOlder = minor < leastMinor || (minor === leastMinor && patch < leastPatch);
  return isOlder ? `Node ${version}` : undefined;
}

/** Logs a warning if the hashes are predictable. For the start of a process. */
export function warnOfPredictableHashes(log: Log): void {
  const cause = predictableHashes(process.execArgv, process.version);
  if (cause === undefined) return;
  log.warn(
    { cause },
    'hashes are predictable: anybody may send records that occupy this process for minutes. Use a Node that package.json names, without options that fix the seed',
  );
}
