// Group commit: the requests that arrive during one commit go to Redis together in the next, in one script call; large requests go apart
// from small ones (commit-queue.ts). Each process has one committer per shard, with one commit in flight. So commits are ordered, and a
// late copy of an older one is recognised and refused (attempts.ts). A commit carries the version of the suppressions that this process
// has applied. If the shard has a later one, the script stores nothing; the committer catches up, marks the records of users who were
// suppressed meanwhile, and commits again.

import { commits } from '../contract/limits.js';
import { describeError } from '../log.js';
import { commitRecords, commitSeconds, commitWaitingBytes } from '../metrics.js';
import type { Suppressions } from '../privacy/suppression/suppressions.js';
import { commitBatches } from '../tuning.js';
import { inTime } from '../wait.js';
import { type AttemptOptions, type CommitResult, createAttempts, forAll } from './attempts.js';
import { createCommitQueue, type Queued } from './commit-queue.js';
import type { Group } from './pack.js';
import type { Submission } from './submission.js';

export type Committer = {
  /**
   * Queues a request. All its groups go into one commit, in order, so either all are overloaded or unknown, or none is. Requests of one
   * account are committed in the order of the calls. `settle` is called once, with a result for each group, not much later than
   * `commits.deadlineMs` from now.
   */
  submit(submission: Submission, settle: (results: readonly CommitResult[]) => void): void;
  /** Settles when every submitted group is answered. Later groups are refused as overloaded. */
  close(): Promise<void>;
};

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
  let busy = false;
  let closed = false;
  /** When the previous commit began, and how many requests it carried. */
  let last = { beganMs: Number.NEGATIVE_INFINITY, requests: 0 };
  const idle: (() => void)[] = [];

  function submit(submission: Submission, settle: Waiting['settle']): void {
    const { groups, accountId } = submission;
    if (closed) return settle(forAll(groups, { kind: 'overloaded', reason: 'stopping' }));
    let [records, decisions, bytes] = [0, 0, 0];
    for (const group of groups) {
      records += group.records.length;
      decisions += 1 + group.limits.length;
      bytes += group.bytes;
    }
    const request = { submission, accountId, records, decisions, bytes, settle, sinceMs: performance.now() };
    if (!waiting.add(request))
      return settle(forAll(groups, { kind: 'overloaded', reason: 'too_much_waiting' }));
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
      crash('commit_answered');
      let first = 0;
      for (const each of batch) {
        const end = first + each.submission.groups.length;
        deliver(each, results.slice(first, end));
        first = end;
        crash('group_answered');
      }
    }
    busy = false;
    for (const resolve of idle.splice(0)) resolve();
  }

  function deliver({ settle }: Waiting, results: readonly CommitResult[]): void {
    try {
      settle(results);
    } catch (error) {
      // Only this request's answer is lost.
      log.error({ shard, fault: describeError(error).name }, 'a result of a commit could not be delivered');
    }
  }

  /**
   * Delays a commit so that more requests join it, since most of its cost does not depend on its size. It waits only if the last commit
   * carried several requests, and only while more keep coming: callers who all wait for an answer send nothing meanwhile.
   */
  async function gather(): Promise<void> {
    if (last.requests < 2) return;
    const untilMs = last.beganMs + commitBatches.spacingMs;
    let seen = 0;
    while (
      waiting.size() > seen &&
      waiting.bytes() < commitBatches.bytesMax &&
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
    for (const each of batch) records += each.records;
    commitWaitingBytes.set(waiting.bytes());
    commitRecords.observe(records);
    return batch;
  }

  /** Makes a commit, and makes it again with new marks as long as Redis has a later version of the suppressions. */
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

  /** Whether the work succeeds before the deadline. A failure ends the wait. */
  function isInTime(work: Promise<void>, deadline: number): Promise<boolean> {
    const done = work.then(
      () => true,
      (error: unknown) => {
        log.warn({ shard, error }, 'the suppressions cannot be brought up to date');
        return false;
      },
    );
    return inTime(done, deadline - performance.now(), false);
  }

  return {
    submit,
    close: async () => {
      closed = true;
      if (busy) await new Promise<void>((resolve) => idle.push(resolve));
      attempts.stop();
    },
  };
}

function allOf(batch: readonly Waiting[], result: CommitResult): readonly CommitResult[] {
  return batch.flatMap(({ submission }) => forAll(submission.groups, result));
}

const suppressionsUnread: CommitResult = { kind: 'overloaded', reason: 'suppressions_unread' };
