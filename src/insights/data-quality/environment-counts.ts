// An environment's counts for its administrators: mendings by reason, ignored fields, requests without a write key, repeats that differ
// from the first record with their key, and records of suppressed users.

import { type Mending, mendings } from '../../ingest/mend.js';
import type { Redis } from '../../redis/client.js';
import { readTotals } from '../../registry/ledger-totals.js';

/** What is counted besides mendings. */
export type OtherCount = (typeof otherCounts)[number];
const otherCounts = ['ignored_fields', 'unauthorized', 'differing_repeats', 'suppressed'] as const;

const termOf = (name: OtherCount) => (name === 'differing_repeats' ? 'differing' : name);

export type CountsOfEnvironment = {
  readonly mended: Readonly<Record<Mending, number>>;
} & Readonly<Record<OtherCount, number>>;

/** The counts of one environment, including zeros. */
export async function readEnvironmentCounts(
  redis: Redis,
  shards: number,
  appId: string,
): Promise<CountsOfEnvironment> {
  const mended = mendings.map((mending) => [mending, `mended ${mending}`] as const);
  const others = otherCounts.map((name) => [name, termOf(name)] as const);
  const totals = await readTotals(
    redis,
    shards,
    [appId],
    [...mended, ...others].map(([, term]) => term),
  );
  const counted = (names: readonly (readonly [string, string])[]) =>
    Object.fromEntries(names.map(([name, term]) => [name, totals.get(term) ?? 0]));
  return {
    mended: counted(mended) as Record<Mending, number>,
    ...(counted(others) as Record<OtherCount, number>),
  };
}
