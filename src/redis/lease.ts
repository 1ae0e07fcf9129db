// What one process at a time holds: turns, which are taken once per period, and leases, which are renewed during the work. Those of a
// killed process end by themselves. A lease says who may begin, not that nobody else is at work: the process may be paused until its
// lease has ended, and Redis may be emptied. So what must not be done twice is also checked where it is done.

import { randomBytes } from 'node:crypto';
import { processLocks } from '../tuning.js';
import { untilTrue } from '../wait.js';
import type { Redis } from './client.js';
import { runScript, scripts } from './scripts.js';

/**
 * Takes the turn for `ms` if it is free or already the owner's. Settles with whether it did. `owner`: who may renew it, such as
 * `retry 3f09…`. `from`: the first words of owners from whom it may be taken.
 */
export async function takeTurn(
  redis: Redis,
  key: string,
  ms: number,
  owner: string = newOwner(),
  from: readonly string[] = [],
): Promise<boolean> {
  return Number(await runScript(redis, scripts.takeTurn, [key], [ms, owner, ...from])) === 1;
}

/** Deletes a key if it still has this value: another process may have set another one since. Settles with whether it had. */
export function deleteEqual(redis: Redis, key: string, value: string): Promise<boolean> {
  return keepTurn(redis, key, value, 0);
}

/** Makes the owner's turn end `ms` from now. Settles with false if it has ended, or if another process has taken it since. */
async function keepTurn(redis: Redis, key: string, owner: string, ms: number): Promise<boolean> {
  return Number(await runScript(redis, scripts.keepTurn, [key], [owner, ms])) === 1;
}

/** Whether this turn was taken within `everyMs`; then the caller need not prepare for it. */
export async function isTurnTaken(redis: Redis, key: string, everyMs: number): Promise<boolean> {
  const leftMs = await redis.pttl(key);
  // Longer than a turn lasts: Redis's clock was set back since. `takeTurn` repairs that.
  return leftMs >= 0 && leftMs <= everyMs;
}

/** A new owner: letters and digits, different each time. */
export function newOwner(): string {
  return randomBytes(12).toString('hex');
}

export type Lease = {
  /** Different each time that it is taken. */
  readonly owner: string;
  /** Asks Redis whether this process has the lease, and renews it. */
  readonly isHeld: () => Promise<boolean>;
};

export type LeaseTimes = {
  /** The lease of a killed process ends after this long. */
  readonly holdMs: number;
  readonly renewEveryMs: number;
};

export type LeaseOptions = LeaseTimes & {
  readonly owner?: string;
  /** As for `takeTurn`. */
  readonly from?: readonly string[];
  /** How long to wait for another process; not at all by default. */
  readonly waitMsMax?: number;
  /** Whether `isHeld` takes the lease again if it has ended meanwhile and is free. */
  readonly takesAgain?: boolean;
};

/** Renews a lease that was taken, until `end` is called. */
export function holdLease(
  redis: Redis,
  key: string,
  owner: string,
  { holdMs, renewEveryMs }: LeaseTimes,
  isHeld = () => keepTurn(redis, key, owner, holdMs),
): Lease & { readonly end: () => Promise<void> } {
  // If a renewal fails, the next one follows. Whoever works asks whether the lease is lost.
  const renewal = setInterval(() => void isHeld().catch(() => false), renewEveryMs);
  const end = async () => {
    clearInterval(renewal);
    // If Redis does not answer, it ends by itself.
    await deleteEqual(redis, key, owner).catch(() => false);
  };
  return { owner, isHeld, end };
}

/** Runs `work` while this process has the lease. Settles with `locked`, without running it, if another process keeps it. */
export async function withLease<Result>(
  redis: Redis,
  key: string,
  { owner = newOwner(), from, waitMsMax = 0, takesAgain = false, ...times }: LeaseOptions,
  work: (lease: Lease) => Promise<Result>,
): Promise<Result | 'locked'> {
  const take = () => takeTurn(redis, key, times.holdMs, owner, from);
  if (!(await untilTrue(take, { everyMs: 100, msMax: waitMsMax }))) return 'locked';
  const lease = holdLease(redis, key, owner, times, takesAgain ? take : undefined);
  try {
    return await work(lease);
  } finally {
    await lease.end();
  }
}

/** Runs `work` while no other process has the lock: waits for longer than the lock of a killed one lasts. */
export async function withProcessLock<Result>(
  redis: Redis,
  key: string,
  work: (lease: Lease) => Promise<Result>,
): Promise<Result | 'locked'> {
  return withLease(redis, key, { ...processLocks, takesAgain: true }, work);
}
