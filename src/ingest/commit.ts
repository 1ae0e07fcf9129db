// Group commit: everything that arrived while the last commit was under way goes to Redis in one script call. There is one
// committer per shard and process, with one commit in flight. So commits have an order, and a late copy of an older one
// is recognised and refused. A commit also says which version of the suppressions this process has. If a shard has a later one,
// the script stores nothing, and the commit is repeated without the records of users who were suppressed meanwhile.

import { randomBytes } from 'node:crypto';
import { markerRows } from '../clickhouse/tables.js';
import { commits } from '../contract/limits.js';
import { currentVersionOf } from '../contract/records.js';
import type { CrashPoint } from '../crash-point.js';
import { describeError, type Log } from '../log.js';
import { commitRecords, commitRepeats, commitSeconds, commitWaitingBytes } from '../metrics.js';
import { dropSilentConnection, type Redis, reachOf } from '../redis/client.js';
import { classifyRedisFault } from '../redis/faults.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import type { Join, Suppressions } from '../suppression/suppressions.js';
import { commitBatches } from '../tuning.js';
import { packGroups } from './pack.js';
import type { Submission } from './submission.js';

/** The result of a group. */
export type CommitResult =
  /** One letter per record: `s` stored, `r` repeat. The record is in Redis's append-only file. */
  | {
      readonly kind: 'committed';
      readonly letters: string;
      /** How many of the repeats say something else than the first record with their key, if any do. */
      readonly differing?: number;
    }
  /** Refused by the limit at this index of the group's limits; nothing stored or consumed. */
  | { readonly kind: 'limited'; readonly limitIndex: number; readonly waitMs: number }
  /** Nothing stored. */
  | { readonly kind: 'overloaded'; readonly reason: OverloadReason }
  /** Perhaps stored. */
  | { readonly kind: 'unknown' }
  /** Perhaps stored: the commit met an error of ours. */
  | { readonly kind: 'failed'; readonly fault: unknown };

export type OverloadReason =
  | 'redis_unreachable'
  | 'redis_refuses'
  | 'backlog_full'
  | 'too_much_waiting'
  | 'state_not_loaded'
  | 'suppressions_unread'
  | 'too_many_suppressed_users'
  | 'stopping';

export type Committer = {
  /**
   * Queues a request. All of its groups go into one commit, in order, so either all are overloaded or unknown, or none
   * is. `settle` is called once with a result for each of the groups that the submission has by then, not much later than
   * `commits.deadlineMs` from now.
   */
  submit(submission: Submission, settle: (results: readonly CommitResult[]) => void): void;
  /** Settles when every submitted group is answered. Later groups are refused as overloaded. */
  close(): Promise<void>;
};

/** A part of a commit, and the number of its records and bytes. */
type Waiting = {
  readonly submission: Submission;
  readonly records: number;
  readonly bytes: number;
  readonly settle: (results: readonly CommitResult[]) => void;
  readonly sinceMs: number;
};

export type CommitterOptions = {
  readonly redis: Redis;
  readonly shard: number;
  readonly suppressions: Suppressions;
  /** The epoch of the deployment. A Redis with another epoch or none refuses commits. */
  readonly epoch: string;
  readonly backlogBytesMax: number;
  readonly segmentBytesMax: number;
  /** The age at which a tick seals a segment. */
  readonly segmentAgeMsMax: number;
  readonly crash: CrashPoint;
  readonly log: Log;
};

export function createCommitter(options: CommitterOptions): Committer {
  const { redis, shard, suppressions, crash, log } = options;
  const keys = [shardKeys.state(shard), shardKeys.segments(shard), shardKeys.answers(shard)];
  const processId = randomBytes(9).toString('base64url');
  const reach = reachOf(redis, shardKeys.state(shard));

  let waiting: Waiting[] = [];
  let waitingBytes = 0;
  let busy = false;
  let closed = false;
  let sequence = 0;
  /** When the previous commit began, and how many requests it carried. */
  let last = { beganMs: Number.NEGATIVE_INFINITY, requests: 0 };
  const idle: (() => void)[] = [];

  function submit(submission: Submission, settle: Waiting['settle']): void {
    const groups = submission.groups();
    let records = 0;
    let bytes = 0;
    for (const group of groups) {
      records += group.records.length;
      bytes += group.bytes;
    }
    const refuse = (reason: OverloadReason) => settle(groups.map(() => ({ kind: 'overloaded', reason })));
    if (closed) return refuse('stopping');
    if (waitingBytes + bytes > commits.waitingBytesMax) return refuse('too_much_waiting');
    waiting.push({ submission, records, bytes, settle, sinceMs: performance.now() });
    waitingBytes += bytes;
    if (!busy) {
      busy = true;
      // All requests that are parsed in this turn of the event loop go into one commit.
      setImmediate(() => void drain());
    }
  }

  async function drain(): Promise<void> {
    while (waiting.length > 0) {
      await gather();
      const batch = takeBatch();
      const started = performance.now();
      last = { beganMs: started, requests: batch.length };
      const results = await commit(batch).catch((fault: unknown) => always({ kind: 'failed', fault }));
      commitSeconds.observe((performance.now() - started) / 1000);
      let index = 0;
      crash('commit_answered');
      for (const each of batch) {
        tell(each, () => results(index++));
        crash('group_answered');
      }
    }
    busy = false;
    for (const resolve of idle.splice(0)) resolve();
  }

  function tell({ submission, settle }: Waiting, result: () => CommitResult): void {
    const its = submission.groups().map(result);
    try {
      settle(its);
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
      waiting.length > seen &&
      waitingBytes < commitBatches.bytesMax &&
      !closed &&
      performance.now() < untilMs
    ) {
      seen = waiting.length;
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  function takeBatch(): Waiting[] {
    let count = 0;
    let records = 0;
    let bytes = 0;
    for (const next of waiting) {
      const fits =
        records + next.records <= commitBatches.recordsMax && bytes + next.bytes <= commitBatches.bytesMax;
      if (count > 0 && !fits) break;
      count += 1;
      records += next.records;
      bytes += next.bytes;
    }
    const batch = count === waiting.length ? waiting : waiting.slice(0, count);
    waiting = count === waiting.length ? [] : waiting.slice(count);
    waitingBytes -= bytes;
    commitWaitingBytes.set(waitingBytes);
    commitRecords.observe(records);
    return batch;
  }

  /**
   * Makes a commit, and repeats it while Redis says that there is a later version of the suppressions. Requests that can
   * be carried out by no version are answered, and leave the batch.
   */
  async function commit(batch: Waiting[]): Promise<(index: number) => CommitResult> {
    const deadline = (batch[0] as Waiting).sinceMs + commits.deadlineMs;
    const joined = new Set<string>();
    for (;;) {
      for (const { submission } of batch) submission.renew();
      const joins = newJoins(batch, joined);
      if (joins.length > 0) {
        let withoutRoom: readonly Join[] = [];
        const joining = suppressions.join(joins).then((those) => {
          withoutRoom = those;
        });
        if (!(await inTime(joining, deadline))) return always(suppressionsUnread);
        refuseThose(batch, withoutRoom);
        continue;
      }
      if (batch.length === 0) return always(tooManySuppressed);
      const result = await commitOnce(batch, deadline);
      if (typeof result === 'function') return result;
      if (!(await inTime(suppressions.reach(result.version), deadline))) return always(suppressionsUnread);
    }
  }

  /** Answers the requests that have one of these joins, and takes them out of the batch. Nothing of them is stored. */
  function refuseThose(batch: Waiting[], withoutRoom: readonly Join[]): void {
    const names = new Set(withoutRoom.map(nameOfJoin));
    const isRefused = ({ submission }: Waiting) =>
      submission.joins().some((each) => names.has(nameOfJoin(each)));
    const [refused, others] = [batch.filter(isRefused), batch.filter((each) => !isRefused(each))];
    batch.splice(0, batch.length, ...others);
    for (const each of refused) tell(each, () => tooManySuppressed);
  }

  /** Whether work is done before the deadline. Before it, work that fails is a reason to give up, too. */
  async function inTime(work: Promise<void>, deadline: number): Promise<boolean> {
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

  /**
   * Makes one commit. Repeats it under its number until it is answered or its deadline has passed. Settles with the version
   * of the suppressions if Redis wants that one applied first; nothing is stored then.
   */
  async function commitOnce(
    batch: Waiting[],
    deadline: number,
  ): Promise<((index: number) => CommitResult) | { readonly version: number }> {
    sequence += 1;
    const groups = batch.flatMap(({ submission }) => submission.groups());
    const packed = packGroups(groups);
    const args = [
      options.epoch,
      sequence,
      options.backlogBytesMax,
      options.segmentBytesMax,
      processId,
      packed.decisions,
      options.segmentAgeMsMax + commitBatches.overdueSegmentMsMax,
      suppressions.version(),
      Math.min(...batch.map(({ submission }) => submission.registryVersion)),
      ...packed.rows.flatMap(({ table, text }) => [currentVersionOf(table), markerRows[table], text]),
    ];
    crash('commit_packed');
    let sent = false;
    for (let left = deadline - performance.now(); left > 0; left = deadline - performance.now()) {
      if (await reach.reaches()) {
        if (sent) commitRepeats.inc();
        const reply = await attempt(args, left);
        if (reply.kind !== 'answer') reach.doubt();
        if (reply.kind === 'answer') {
          if (reply.text.startsWith('v')) return { version: Number(reply.text.slice(1)) };
          // An earlier copy may still arrive at a time when there is room.
          const refused = reply.text === 'o' || reply.text === 'e';
          return sent && refused ? always({ kind: 'unknown' }) : readAnswer(reply.text, groups.length);
        }
        if (reply.kind === 'refused' && !sent) return always({ kind: 'overloaded', reason: 'redis_refuses' });
        if (reply.kind === 'lost') sent = true;
      }
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    log.warn({ shard, requests: batch.length, sent }, 'commit not answered before its deadline');
    return always(sent ? { kind: 'unknown' } : { kind: 'overloaded', reason: 'redis_unreachable' });
  }

  /** Sends a commit once. Gives up after `leftMs` at the latest. */
  async function attempt(args: (string | number | Buffer)[], leftMs: number): Promise<Reply> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_, reject) => {
      const giveUp = () => reject(new Error('no reply in time'));
      // Timers run before replies that have arrived. So a process that was paused looks at its replies before it gives up.
      timer = setTimeout(() => setImmediate(giveUp), Math.min(leftMs, commitBatches.attemptMs));
    });
    try {
      const reply = runScript(redis, scripts.commit, keys, args);
      crash('commit_sent');
      return { kind: 'answer', text: String(await Promise.race([reply, silence])) };
    } catch (error) {
      const kind = classifyRedisFault(error);
      if (kind === 'full' || kind === 'refused') {
        log.warn({ shard, error: describeError(error) }, 'redis refuses commits');
        return { kind: 'refused' };
      }
      if (kind === 'broken') log.error({ shard, error: describeError(error) }, 'the commit script failed');
      // A connection that stays silent may stay so; a new one gets another chance within the deadline.
      else dropSilentConnection(redis);
      return { kind: 'lost' };
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

const suppressionsUnread: CommitResult = { kind: 'overloaded', reason: 'suppressions_unread' };
const tooManySuppressed: CommitResult = { kind: 'overloaded', reason: 'too_many_suppressed_users' };

function nameOfJoin({ environment, userId, identity }: Join): string {
  return `${environment.appId} ${userId} ${identity}`;
}

/** The joins of the submissions that are not in `known` yet; adds them to it. */
function newJoins(batch: readonly Waiting[], known: Set<string>): Join[] {
  const joins: Join[] = [];
  for (const { submission } of batch) {
    for (const join of submission.joins()) {
      const name = nameOfJoin(join);
      if (known.has(name)) continue;
      known.add(name);
      joins.push(join);
    }
  }
  return joins;
}

type Reply = { kind: 'answer'; text: string } | { kind: 'refused' } | { kind: 'lost' };

function always(result: CommitResult): () => CommitResult {
  return () => result;
}

function committed(answer: string): CommitResult {
  if (!answer.includes('d')) return { kind: 'committed', letters: answer };
  const letters = answer.replaceAll('d', 'r');
  return { kind: 'committed', letters, differing: answer.split('d').length - 1 };
}

function readAnswer(text: string, groupCount: number): (index: number) => CommitResult {
  switch (text) {
    case 'e':
      return always({ kind: 'overloaded', reason: 'state_not_loaded' });
    case 'o':
      return always({ kind: 'overloaded', reason: 'backlog_full' });
    case 'x':
      return always({ kind: 'unknown' });
  }
  const answers = text.split(',');
  if (answers.length !== groupCount) throw new Error('the commit script answered for other groups');
  return (index) => {
    const answer = answers[index] as string;
    if (!answer.startsWith('l')) return committed(answer);
    const colon = answer.indexOf(':');
    return {
      kind: 'limited',
      limitIndex: Number(answer.slice(1, colon)),
      waitMs: Number(answer.slice(colon + 1)),
    };
  };
}
