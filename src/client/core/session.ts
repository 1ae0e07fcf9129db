// The current session of an app: a random id that lasts until nothing was called for the idle time. Storage is
// the truth, so that tabs share one session and pages continue it.

import type { Clock, KeyValueStorage, RandomBytes } from './adapters.js';
import { isUserId, randomUserId } from './random-ids.js';

export type Session = {
  /** The id of the session, which a call uses now: idle time begins anew. */
  use(): string;
  /** Begins a new session. */
  renew(): string;
};

/** A use is written down when the last one written is older than this. */
const writeEveryMs = 1000;

export function createSession(
  storage: KeyValueStorage,
  key: string,
  clock: Clock,
  randomBytes: RandomBytes,
  idleMs: () => number,
): Session {
  function keep(id: string): string {
    storage.set(key, `${id} ${clock.now()}`);
    return id;
  }

  function renew(): string {
    return keep(randomUserId(randomBytes));
  }

  function use(): string {
    const [id, usedText] = (storage.get(key) ?? '').split(' ');
    // A clock that was set back by more than the idle time ends the session too, or it might never end.
    const idle = Math.abs(clock.now() - Number(usedText));
    if (!isUserId(id) || !(idle <= idleMs())) return renew();
    return idle < writeEveryMs ? id : keep(id);
  }

  return { use, renew };
}
