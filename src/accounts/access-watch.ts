// Ends long work, such as a download or a page that watches a device, within a second of the end of the access that allows it. Every API
// process already asks twice a second whether the registry has changed or a session was ended; if so, each watched access is checked
// again. An access that merely expires is noticed within some seconds.

import { accessWatch } from '../contract/limits.js';

/**
 * Calls `stop` once, when `mayGoOn` says no: it is asked at once, after each change, and regularly. While Redis is away, work goes on.
 * Returns a function that ends the watch.
 */
export type WatchAccess = (mayGoOn: () => Promise<boolean>, stop: () => void) => () => void;

/** `onChange` calls a listener after each change, and returns a function that ends that. */
export function createAccessWatch(
  onChange: (listener: () => void) => () => void,
  askedEveryMs: number = accessWatch.askedEveryMs,
): WatchAccess {
  return (mayGoOn, stop) => {
    let state: 'idle' | 'asking' | 'asking again' | 'over' = 'idle';
    const check = async () => {
      if (state !== 'idle') {
        // The answer that is under way may be older than the change.
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
    // Functions, since the compiler assumes that the state is still what it was before the await.
    const isOver = () => state === 'over';
    const isToAskAgain = () => state === 'asking again';
    const leave = onChange(() => void check());
    const timer = setInterval(() => void check(), askedEveryMs);
    function end(): void {
      state = 'over';
      leave();
      clearInterval(timer);
    }
    void check();
    return end;
  };
}
