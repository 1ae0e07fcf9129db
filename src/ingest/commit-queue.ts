// Requests that wait for a commit of their shard. An account's requests keep their order. Commits alternate: one with small requests of
// all accounts, then one with large requests of a single account. So a caller who sends one event waits for at most one large commit of
// another account, however many large requests are queued.

import { commitBatches } from '../tuning.js';

/** What the queue needs to know about a request. */
export type Queued = {
  readonly accountId: string;
  readonly records: number;
  /** How much the script has to decide: the number of groups, plus that of the limits that they must pass. */
  readonly decisions: number;
  readonly bytes: number;
};

export type CommitQueue<T extends Queued> = {
  add(request: T): void;
  /** How many wait. */
  readonly size: () => number;
  /** Takes the requests of the next commit: at least one if any are waiting. */
  take(): T[];
};

export function createCommitQueue<T extends Queued>(): CommitQueue<T> {
  /** The waiting requests by account, in the order of the accounts' turns. No list is empty. */
  const waiting = new Map<string, T[]>();
  let size = 0;
  let wasLarge = false;

  function takeSmall(): T[] {
    const batch = newBatch<T>();
    const later: string[] = [];
    for (const [accountId, requests] of waiting) {
      const count = countLeading(requests, (next) => !isLarge(next) && batch.tryAdd(next));
      if (count === 0) continue;
      if (count === requests.length) waiting.delete(accountId);
      else {
        requests.splice(0, count);
        later.push(accountId);
      }
    }
    for (const accountId of later) putLast(accountId);
    return batch.requests;
  }

  function takeLarge(): T[] {
    const batch = newBatch<T>();
    for (const [accountId, requests] of waiting) {
      if (!isLarge(requests[0] as T)) continue;
      requests.splice(0, countLeading(requests, batch.tryAdd));
      if (requests.length === 0) waiting.delete(accountId);
      else putLast(accountId);
      break;
    }
    return batch.requests;
  }

  function putLast(accountId: string): void {
    const requests = waiting.get(accountId) as T[];
    waiting.delete(accountId);
    waiting.set(accountId, requests);
  }

  return {
    add: (request) => {
      const earlier = waiting.get(request.accountId);
      if (earlier === undefined) waiting.set(request.accountId, [request]);
      else earlier.push(request);
      size += 1;
    },
    size: () => size,
    take: () => {
      let taken = wasLarge ? takeSmall() : takeLarge();
      if (taken.length === 0) taken = wasLarge ? takeLarge() : takeSmall();
      else wasLarge = !wasLarge;
      size -= taken.length;
      return taken;
    },
  };
}

function isLarge({ records }: Queued): boolean {
  return records > commitBatches.smallRecordsMax;
}

/** How many requests, from the first on, fit; `tryAdd` takes them. */
function countLeading<T>(requests: readonly T[], tryAdd: (next: T) => boolean): number {
  let count = 0;
  while (count < requests.length && tryAdd(requests[count] as T)) count += 1;
  return count;
}

/** Gathers the requests of one commit as long as they fit. The first one always fits. */
function newBatch<T extends Queued>() {
  const requests: T[] = [];
  let [records, decisions, bytes] = [0, 0, 0];
  return {
    requests,
    tryAdd: (next: T): boolean => {
      const fits =
        records + next.records <= commitBatches.recordsMax &&
        decisions + next.decisions <= commitBatches.decisionsMax &&
        bytes + next.bytes <= commitBatches.bytesMax;
      if (requests.length > 0 && !fits) return false;
      requests.push(next);
      records += next.records;
      decisions += next.decisions;
      bytes += next.bytes;
      return true;
    },
  };
}
