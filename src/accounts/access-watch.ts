// Ends what goes on for long, such as a download or a page that watches a device, within a second of the end of the access that it
// goes on under. Every API process already asks twice a second whether the registry has changed or a session was ended; if so,
// each watched access is looked at again. What ends by its time alone is noticed within some seconds.

import { accessWatch } from '../contract/limits.js';

/**
 * Calls `stop` once, when `mayGoOn` says no: it is asked now, after each change, and now and then. While Redis is away, which
 * would know it, things go on. Returns what ends the watch.
 */
export type WatchAccess = (mayGoOn: () => Promise<boolean>, stop: () => void) => () => void;

/** `onChange` calls a listener after each change, and returns what ends that. */
export function createAccessWatch(onChange: (listener: () => void) => () => void): WatchAccess {
  return (mayGoOn, stop) => {
    let state: 'idle' | 'asking' | 'asking again' | 'over' = 'idle';
    const check = async () => {
      if (state !== 'idle') {
        // The answer that is on its way may be older than the change.
        if (state === 'asking') state = 'asking again';
        return;
      }
      do {
        state = 'asking';
        const may = await mayGoOn().catch(() => true);
        if (isOver()) return;
        if (!may) {
          end();
          return stop();
        }
      } while (isToAskAgain());
      state = 'idle';
    };
    // The compiler takes the state to be what it was before the await.
    const isOver = () => state === 'over';
    const isToAskAgain = () => state === 'asking again';
    const leave = onChange(() => void check());
    const timer = setInterval(() => void check(), accessWatch.askedEveryMs);
    function end(): void {
      state = 'over';
      leave();
      clearInterval(timer);
    }
    void check();
    return end;
  };
}
