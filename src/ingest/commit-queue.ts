// Requests that wait for a commit of their shard. An account's requests keep their order. Commits alternate: one with small requests of
// all accounts, then one with large requests of a single account. So a caller who sends one event waits for at most one large commit of
// another account, however many large requests are queued. A request finds room if its account then holds no more than was free before.
// So one account fills at most three quarters of the room, since no request has more than half of it (contract/limits.ts).

import { commits } from '../contract/limits.js';
import { commitBatches } from '../tuning.js';

/** What the queue needs to know about a request. */
export type Queued = {
  readonly accountId: string;
  readonly records: number;
  /** How much the script has to decide: the number of groups, plus that of the limits that they must pass. */
  readonly decisions: number;
  readonly bytes: number;
};

/** The waiting requests of an account, and their bytes. */
type Requests<T> = { readonly queue: T[]; bytes: number };

export type CommitQueue<T extends Queued> = {
  /** Adds a request if there is room for it. Returns whether there was. */
  add(request: T): boolean;
  /** How many wait. */
  readonly size: () => number;
  /** The bytes of those that wait. */
  readonly bytes: () => number;
  /** Takes the requests of the next commit: at least one if any are waiting. */
  take(): T[];
};

export function createCommitQueue<T extends Queued>(): CommitQueue<T> {
  /** The waiting requests by account, in the order of the accounts' turns. No list is empty. */
  const waiting = new Map<string, Requests<T>>();
  let size = 0;
  let bytes = 0;
  let wasLarge = false;

  function takeSmall(): T[] {
    const batch = newBatch<T>();
    const later: string[] = [];
    for (const [accountId, requests] of waiting) {
      const count = takeLeading(requests, (next) => !isLarge(next) && batch.tryAdd(next));
      if (requests.queue.length === 0) waiting.delete(accountId);
      else if (count > 0) later.push(accountId);
    }
    for (const accountId of later) putLast(accountId);
    return batch.requests;
  }

  function takeLarge(): T[] {
    const batch = newBatch<T>();
    for (const [accountId, requests] of waiting) {
      if (!isLarge(requests.queue[0] as T)) continue;
      takeLeading(requests, batch.tryAdd);
      if (requests.queue.length === 0) waiting.delete(accountId);
      else putLast(accountId);
      break;
    }
    return batch.requests;
  }

  /** Takes an account's requests, from the first on, as long as `tryAdd` takes them. Returns their number. */
  function takeLeading(requests: Requests<T>, tryAdd: (next: T) => boolean): number {
    const { queue } = requests;
    let count = 0;
    let taken = 0;
    while (count < queue.length && tryAdd(queue[count] as T)) {
      taken += (queue[count] as T).bytes;
      count += 1;
    }
    if (count === 0) return 0;
    queue.splice(0, count);
    requests.bytes -= taken;
    bytes -= taken;
    size -= count;
    return count;
  }

  function putLast(accountId: string): void {
    const requests = waiting.get(accountId) as Requests<T>;
    waiting.delete(accountId);
    waiting.set(accountId, requests);
  }

  return {
    add: (request) => {
      const earlier = waiting.get(request.accountId);
      const own = (earlier?.bytes ?? 0) + request.bytes;
      if (own > commits.waitingBytesMax - bytes) return false;
      if (earlier === undefined) waiting.set(request.accountId, { queue: [request], bytes: own });
      else {
        earlier.queue.push(request);
        earlier.bytes = own;
      }
      size += 1;
      bytes += request.bytes;
      return true;
    },
    size: () => size,
    bytes: () => bytes,
    take: () => {
      let taken = wasLarge ? takeSmall() : takeLarge();
      if (taken.length === 0) taken = wasLarge ? takeLarge() : takeSmall();
      else wasLarge = !wasLarge;
      return taken;
    },
  };
}

function isLarge({ records }: Queued): boolean {
  return records > commitBatches.smallRecordsMax;
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
