// Group commit: what arrived while the last commit was under way goes to Redis in one script call, large requests apart from small
// ones (commit-queue.ts). There is one committer per shard and process, with one commit in flight. So commits have an order, and a late
// copy of an older one is recognised and refused (attempts.ts). A commit also says which version of the suppressions this process has.
// If a shard has a later one, the script stores nothing, and the commit is repeated with the records of users who were suppressed
// meanwhile marked.

import { commits } from '../contract/limits.js';
import { describeError } from '../log.js';
import { commitRecords, commitSeconds, commitWaitingBytes } from '../metrics.js';
import type { Suppressions } from '../privacy/suppression/suppressions.js';
import { commitBatches } from '../tuning.js';
import { type AttemptOptions, type CommitResult, createAttempts, forAll } from './attempts.js';
import { createCommitQueue, type Queued } from './commit-queue.js';
import type { Group } from './pack.js';
import type { Submission } from './submission.js';

export type Committer = {
  /**
   * Queues a request. All of its groups go into one commit, in order, so either all are overloaded or unknown, or none
   * is. Requests of one account are committed in the order of the calls. `settle` is called once, with a result for each of the groups,
   * not much later than `commits.deadlineMs` from now.
   */
  submit(submission: Submission, settle: (results: readonly CommitResult[]) => void): void;
  /** Settles when every submitted group is answered. Later groups are refused as overloaded. */
  close(): Promise<void>;
};

/** A part of a commit. */
type Waiting = Queued & {
  readonly submission: Submission;
  readonly settle: (results: readonly CommitResult[]) => void;
  readonly sinceMs: number;
};

export type CommitterOptions = AttemptOptions & { readonly suppressions: Suppressions };

export function createCommitter(options: CommitterOptions): Committer {
  const { shard, suppressions, crash, log } = options;
  const attempts = createAttempts(options);

  const waiting = createCommitQueue<Waiting>();
  let waitingBytes = 0;
  let busy = false;
  let closed = false;
  /** When the previous commit began, and how many requests it carried. */
  let last = { beganMs: Number.NEGATIVE_INFINITY, requests: 0 };
  const idle: (() => void)[] = [];

  function submit(submission: Submission, settle: Waiting['settle']): void {
    const { groups, accountId } = submission;
    let [records, decisions, bytes] = [0, 0, 0];
    for (const group of groups) {
      records += group.records.length;
      decisions += 1 + group.limits.length;
      bytes += group.bytes;
    }
    if (closed) return settle(forAll(groups, { kind: 'overloaded', reason: 'stopping' }));
    if (waitingBytes + bytes > commits.waitingBytesMax)
      return settle(forAll(groups, { kind: 'overloaded', reason: 'too_much_waiting' }));
    waiting.add({ submission, accountId, records, decisions, bytes, settle, sinceMs: performance.now() });
    waitingBytes += bytes;
    if (!busy) {
      busy = true;
      // All requests that are parsed in this turn of the event loop go into one commit.
      setImmediate(() => void drain());
    }
  }

  async function drain(): Promise<void> {
    while (waiting.size() > 0) {
      await gather();
      const batch = takeBatch();
      const started = performance.now();
      last = { beganMs: started, requests: batch.length };
      const results = await commit(batch).catch((fault: unknown) => allOf(batch, { kind: 'failed', fault }));
      commitSeconds.observe((performance.now() - started) / 1000);
      let first = 0;
      crash('commit_answered');
      for (const each of batch) {
        const end = first + each.submission.groups.length;
        tell(each, results.slice(first, end));
        first = end;
        crash('group_answered');
      }
    }
    busy = false;
    for (const resolve of idle.splice(0)) resolve();
  }

  function tell({ settle }: Waiting, results: readonly CommitResult[]): void {
    try {
      settle(results);
    } catch (error) {
      // Only this group's answer is lost.
      log.error({ shard, fault: describeError(error).name }, 'a result of a commit could not be delivered');
    }
  }

  /**
   * Lets a commit wait for more requests, since most of its cost does not depend on its content. It waits only if several requests
   * come in the time of a commit, and only while they keep coming: callers who all wait for an answer send nothing meanwhile.
   */
  async function gather(): Promise<void> {
    if (last.requests < 2) return;
    const untilMs = last.beganMs + commitBatches.spacingMs;
    let seen = 0;
    while (
      waiting.size() > seen &&
      waitingBytes < commitBatches.bytesMax &&
      !closed &&
      performance.now() < untilMs
    ) {
      seen = waiting.size();
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  function takeBatch(): Waiting[] {
    const batch = waiting.take();
    let records = 0;
    for (const each of batch) {
      records += each.records;
      waitingBytes -= each.bytes;
    }
    commitWaitingBytes.set(waitingBytes);
    commitRecords.observe(records);
    return batch;
  }

  /** Makes a commit, and repeats it with other marks while Redis says that there is a later version of the suppressions. */
  async function commit(batch: readonly Waiting[]): Promise<readonly CommitResult[]> {
    const groups: Group[] = [];
    let [firstMs, registry] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (const { submission, sinceMs } of batch) {
      for (const group of submission.groups) groups.push(group);
      firstMs = Math.min(firstMs, sinceMs);
      registry = Math.min(registry, submission.registryVersion);
    }
    const deadline = firstMs + commits.deadlineMs;
    for (;;) {
      for (const { submission } of batch) submission.renew();
      const versions = { suppressions: suppressions.version(), registry };
      const result = await attempts.make(groups, versions, deadline);
      if (!('version' in result)) return result;
      if (!(await isInTime(suppressions.reach(result.version), deadline)))
        return allOf(batch, suppressionsUnread);
    }
  }

  /** Whether work is done before the deadline. Before it, work that fails is a reason to give up, too. */
  async function isInTime(work: Promise<void>, deadline: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((settle) => {
      timer = setTimeout(settle, Math.max(0, deadline - performance.now()), false);
    });
    const done = work.then(
      () => true,
      (error: unknown) => {
        log.warn({ shard, error: describeError(error) }, 'the suppressions cannot be brought up to date');
        return false;
      },
    );
    try {
      return await Promise.race([done, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    submit,
    close: async () => {
      closed = true;
      if (busy) await new Promise<void>((resolve) => idle.push(resolve));
    },
  };
}

function allOf(batch: readonly Waiting[], result: CommitResult): readonly CommitResult[] {
  return batch.flatMap(({ submission }) => forAll(submission.groups, result));
}

const suppressionsUnread: CommitResult = { kind: 'overloaded', reason: 'suppressions_unread' };
