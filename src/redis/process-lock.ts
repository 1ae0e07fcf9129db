// Locks that a process holds while it works on something long, and renews. The right of a killed process ends by itself, and another
// one waits for that long before it gives up. A lock says who may begin, not that nobody else works: the process may be paused
// until its right has ended, and Redis may be emptied. So what must not be done twice is also checked where it is done.

import { randomBytes } from 'node:crypto';
import { processLocks } from '../tuning.js';
import type { Redis } from './client.js';
import { runScript, scripts } from './scripts.js';
import { takeTurn } from './turn.js';

export type ProcessLock = {
  /** Letters and digits; another one each time that the lock is taken. */
  readonly owner: string;
  /** Asks Redis whether no other process has the lock, and renews it. Takes it again if it has ended meanwhile. */
  readonly isHeld: () => Promise<boolean>;
};

/** Runs `work` while no other process has the lock. Settles with `locked` if one has it for longer than a killed one would. */
export async function withProcessLock<Result>(
  redis: Redis,
  key: string,
  work: (lock: ProcessLock) => Promise<Result>,
): Promise<Result | 'locked'> {
  const owner = randomBytes(12).toString('hex');
  const { holdMs, renewEveryMs, waitMsMax, checkEveryMs } = processLocks;
  const giveUpAt = performance.now() + waitMsMax;
  while (!(await takeTurn(redis, key, holdMs, owner))) {
    if (performance.now() > giveUpAt) return 'locked';
    await new Promise((resolve) => setTimeout(resolve, checkEveryMs));
  }
  const leave = async (leftMs: number) =>
    Number(await runScript(redis, scripts.endTurn, [key], [owner, leftMs])) === 1;
  const isHeld = async () => (await leave(holdMs)) || takeTurn(redis, key, holdMs, owner);
  // If a renewal fails, the next one follows. `work` itself asks whether the lock is lost.
  const renewal = setInterval(() => void Promise.allSettled([isHeld()]), renewEveryMs);
  try {
    return await work({ owner, isHeld });
  } finally {
    clearInterval(renewal);
    // If Redis does not answer, the right ends by itself.
    await leave(0).catch(() => false);
  }
}
