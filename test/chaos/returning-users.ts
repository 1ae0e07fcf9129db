// Users who return: they are identified, deleted, seen again and deleted again, mostly before the first deletion is complete. No other
// client names them, and each step waits for its answer, so it is known exactly whom the second deletion reaches.

import type { User } from '../harness/deletion.js';
import type { Producer } from '../harness/load.js';
import { again, type Submission } from './deletions.js';
import { hold } from './fault.js';
import { createOwnRecords } from './own-records.js';
import type { Random } from './random.js';

export type ReturningUsersOptions = {
  readonly producer: Producer;
  readonly targets: readonly string[];
  readonly random: Random;
  readonly submit: (users: readonly User[]) => Promise<Submission>;
  /**
   * Pause between two users. There is no bound on incomplete deletions as for the other callers: these may have reached theirs, since a
   * deletion whose targets were lost with Redis never completes.
   */
  readonly everyMs: number;
};

/** High enough that no other client uses these user_ids. */
const firstUserId = 800_000_000;
/** The second deletion comes at once, perhaps in the same round as the first, or after this time, when the first may be complete. */
const returnsAfterMs = 3_000;

export function startReturningUsers(options: ReturningUsersOptions) {
  const { producer, targets, random, submit, everyMs } = options;
  let stopped = false;
  let users = 0;
  const { see, identify } = createOwnRecords(producer, targets, random, 'back', () => !stopped);

  async function comeBack(): Promise<void> {
    users += 1;
    const user_id = String(firstUserId + users);
    const [identity, another] = ['back', 'again'].map(
      (name) => `${producer.mark}-${name}-${users}@example.com`,
    ) as [string, string];
    const named: User[] = [{ user_id: Number(user_id) }, { identity }];
    await see({ user_id });
    await identify(user_id, identity);
    await see({ identity });
    await submit([random.pick(named)]);
    await see({ user_id });
    await see({ identity });
    if (random.int(0, 1) === 1) {
      await identify(user_id, another);
      await see({ identity: another });
      named.push({ identity: another });
    }
    await hold(random.pick([0, 0, returnsAfterMs]));
    await submit([random.pick(named)]);
    await see({ user_id });
    await see({ identity });
  }

  const running = again(() => !stopped, everyMs, comeBack);
  return async (): Promise<void> => {
    stopped = true;
    await running;
  };
}
