// The downloads of one API process: a few at a time, and accounts take turns. Each has a time limit, since ClickHouse keeps the files that
// it reads even after a deletion has replaced them. A download with a slow reader is ended earlier if an account without downloads waits.

import { createPlaces } from '../../concurrency.js';
import { userExports } from '../../contract/limits.js';

export type Downloads = ReturnType<typeof createDownloads>;

export type Download = {
  readonly signal: AbortSignal;
  readonly abort: () => void;
  /** Calls `write`, which passes this many bytes to the reader, and settles as it does. Measures how slow the reader is. */
  readonly deliver: (bytes: number, write: () => Promise<boolean>) => Promise<boolean>;
  readonly end: () => void;
};

export function createDownloads(
  msMax: number = userExports.downloadMsMax,
  slowAfterMs: number = userExports.slowAfterMs,
) {
  const places = createPlaces(userExports.downloads);
  const running = new Set<Download>();
  return {
    /** Starts a download once a place is free; undefined if none was free in time. Its `signal` is aborted when it must end. */
    begin: async (accountId: string) => {
      const controller = new AbortController();
      const abort = () => controller.abort();
      let bytesTaken = 0;
      let waitedMs = 0;
      let waitingSinceMs: number | undefined;
      /** Counts the time that the reader takes, not the time in which ClickHouse finds the records. */
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
