// The downloads of one API process: a few at a time, in turns by account. Each is cut off after a while, since ClickHouse keeps
// the files that it reads, even if a deletion has replaced them; one whose reader is slow is cut off earlier, when an account that
// downloads nothing waits.

import { userExports } from '../contract/limits.js';
import { createPlaces } from '../places.js';

export type Downloads = {
  /** Begins a download once there is a place; undefined when there was none in time. Its `signal` is aborted when it may not go on. */
  begin(accountId: string): Promise<Download | undefined>;
  /** Ends all of them. */
  close(): void;
};

export type Download = {
  readonly signal: AbortSignal;
  readonly abort: () => void;
  /** Notes that the reader took so many bytes. */
  readonly took: (bytes: number) => void;
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
      let beganMs = performance.now();
      let bytes = 0;
      const isSlow = () => {
        const ms = performance.now() - beganMs;
        return ms >= slowAfterMs && bytes < (userExports.slowBytesPerSecondMax * ms) / 1000;
      };
      const endPlace = await places.take({ account: accountId }, { isSlow, leave: abort });
      if (endPlace === undefined) return undefined;
      beganMs = performance.now();
      const timer = setTimeout(abort, msMax);
      const download: Download = {
        signal: controller.signal,
        abort,
        took: (count) => {
          bytes += count;
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
