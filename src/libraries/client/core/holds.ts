// Which messages are being sent, so that no other tab sends them too. Each request notes their keys in storage, with a time at which the
// note expires, since the page that made the request may be gone.

import type { Clock, KeyValueStorage } from './adapters.js';
import { clientLimits } from './limits.js';
import { msUntil } from './time.js';

export type Holds = ReturnType<typeof createHolds>;

export function createHolds(storage: KeyValueStorage, prefix: string, clock: Clock, newId: () => string) {
  return {
    /** Notes that these keys are being sent. The returned function removes the note. */
    place(keys: readonly string[], ms: number): () => void {
      const name = prefix + newId();
      storage.set(name, `${clock.now() + ms} ${keys.join(' ')}`);
      return () => storage.remove(name);
    },
    /** The keys that are held now, each with the milliseconds until its hold expires. */
    current(): ReadonlyMap<string, number> {
      const held = new Map<string, number>();
      for (const name of storage.keys(prefix)) {
        const [until, ...keys] = (storage.get(name) ?? '').split(' ');
        const left = msUntil(Number(until), clientLimits.holdMsMax, clock);
        if (left > 0) {
          for (const key of keys) held.set(key, Math.max(left, held.get(key) ?? 0));
        } else {
          storage.remove(name);
        }
      }
      return held;
    },
  };
}
