// The downloads of one API process: a few at a time, in turns by account. Each is cut off after a while, since ClickHouse keeps
// the files that it reads, even if a deletion has replaced them; one whose reader is slow is cut off earlier, when an account that
// downloads nothing waits.

import { userExports } from '../../contract/limits.js';
import { createPlaces } from '../../places.js';

export type Downloads = {
  /** Begins a download once there is a place; undefined when there was none in time. Its `signal` is aborted when it may not go on. */
  begin(accountId: string): Promise<Download | undefined>;
  /** Ends all of them. */
  close(): void;
};

export type Download = {
  readonly signal: AbortSignal;
  readonly abort: () => void;
  /** Settles as `write` does, which hands so many bytes to the reader; how long that takes says how slow the reader is. */
  readonly deliver: (bytes: number, write: () => Promise<boolean>) => Promise<boolean>;
  readonly end: () => void;
};

export function createDownloads(
  msMax: number = userExports.downloadMsMax,
  slowAfterMs: number = userExports.slowAfterMs,
): Downloads {
  const places = createPlaces(userExports.downloads);
  const running = new Set<Download>();
  return {
    begin: async (accountId) => {
      const controller = new AbortController();
      const abort = () => controller.abort();
      let bytesTaken = 0;
      let waitedMs = 0;
      let waitingSinceMs: number | undefined;
      /** By the time that the reader needs, not by what ClickHouse takes to find the records. */
      const isSlow = () => {
        const ms = waitedMs + (waitingSinceMs === undefined ? 0 : performance.now() - waitingSinceMs);
        return ms >= slowAfterMs && bytesTaken < (userExports.slowBytesPerSecondMax * ms) / 1000;
      };
      const endPlace = await places.take({ account: accountId }, { isSlow, leave: abort });
      if (endPlace === undefined) return undefined;
      const timer = setTimeout(abort, msMax);
      const download: Download = {
        signal: controller.signal,
        abort,
        deliver: async (bytes, write) => {
          const sinceMs = performance.now();
          waitingSinceMs = sinceMs;
          try {
            return await write();
          } finally {
            waitedMs += performance.now() - sinceMs;
            waitingSinceMs = undefined;
            bytesTaken += bytes;
          }
        },
        end: () => {
          clearTimeout(timer);
          running.delete(download);
          endPlace();
        },
      };
      running.add(download);
      return download;
    },
    close: () => {
      for (const { abort } of running) abort();
    },
  };
}
