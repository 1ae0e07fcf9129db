// The downloads of one API process: a few at a time, and fewer per account. Each is cut off after a while, since ClickHouse keeps
// the files that it reads, even if a deletion has replaced them.

import { userExports } from '../contract/limits.js';

export type Downloads = {
  /** Begins a download; undefined when there is no room. Its `signal` is aborted when it may not go on. */
  begin(accountId: string): Download | undefined;
  /** Ends all of them. */
  close(): void;
};

export type Download = { readonly signal: AbortSignal; readonly abort: () => void; readonly end: () => void };

export function createDownloads(msMax: number = userExports.downloadMsMax): Downloads {
  const running = new Set<Download & { readonly accountId: string }>();
  return {
    begin: (accountId) => {
      const ofAccount = [...running].filter((each) => each.accountId === accountId).length;
      if (running.size >= userExports.downloadsMax || ofAccount >= userExports.downloadsPerAccountMax) return;
      const controller = new AbortController();
      const abort = () => controller.abort();
      const timer = setTimeout(abort, msMax);
      const download = {
        accountId,
        signal: controller.signal,
        abort,
        end: () => {
          clearTimeout(timer);
          running.delete(download);
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
