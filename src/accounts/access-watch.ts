// Ends long work, such as a download or a page that watches a device, within a second of the end of the access that allows it. Every API
// process already asks twice a second whether the registry has changed or a session was ended; if so, each watched access is checked
// again. An access that merely expires is noticed within some seconds.

import { accessWatch } from '../contract/limits.js';
import { sharing } from '../wait.js';

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
    let isOver = false;
    // A change that comes while the answer is under way is asked about again, since that answer may be older.
    const check = sharing(async () => {
      if (isOver) return;
      const may = await mayGoOn().catch(() => true);
      if (may || isOver) return;
      end();
      stop();
    });
    const leave = onChange(() => void check());
    const timer = setInterval(() => void check(), askedEveryMs);
    function end(): void {
      isOver = true;
      leave();
      clearInterval(timer);
    }
    void check();
    return end;
  };
}
