// Group commit: everything that arrived while the last commit was under way goes to Redis in one script
// call. One committer a shard and process, one commit in flight, so that commits have an order and a late
// copy of an older one can be told and refused.

import { randomBytes } from 'node:crypto';
import { markerRows, tables } from '../clickhouse/tables.js';
import { commits } from '../contract/limits.js';
import type { CrashPoint } from '../crash-point.js';
import { describeError, type Log } from '../log.js';
import { commitRecords, commitRepeats, commitSeconds, commitWaitingBytes } from '../metrics.js';
import { leaveSilent, type Redis, reachOf } from '../redis/client.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { type Group, packGroups } from './pack.js';

/** What became of a group. */
export type CommitResult =
  /** One letter a record: `s` stored, `r` repeat. It is in Redis's append-only file. */
  | { readonly kind: 'committed'; readonly letters: string }
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
  | 'stopping';

export type Committer = {
  /** Takes a group; `settle` is called once, before the deadline of `commits.deadlineMs` is much past. */
  submit(group: Group, settle: (result: CommitResult) => void): void;
  /**
   * Takes groups that go in one commit, in their order: all or none of them are overloaded or unknown.
   * `settle` is called once with a result for each.
   */
  submitTogether(groups: readonly Group[], settle: (results: readonly CommitResult[]) => void): void;
  /** Settles when all that was submitted is answered. Later groups are refused as overloaded. */
  close(): Promise<void>;
};

/** What goes into one commit: groups, their records and bytes. */
type Waiting = {
  readonly groups: readonly Group[];
  readonly records: number;
  readonly bytes: number;
  readonly settle: (results: readonly CommitResult[]) => void;
  readonly sinceMs: number;
};

export type CommitterOptions = {
  readonly redis: Redis;
  readonly shard: number;
  /** Epoch of the deployment; a Redis with another one, or none, refuses. */
  readonly epoch: string;
  readonly backlogBytesMax: number;
  readonly segmentBytesMax: number;
  /** Age at which a tick seals a segment. */
  readonly segmentAgeMsMax: number;
  readonly crash: CrashPoint;
  readonly log: Log;
};

export function createCommitter(options: CommitterOptions): Committer {
  const { redis, shard, crash, log } = options;
  const keys = [shardKeys.state(shard), shardKeys.segments(shard), shardKeys.answers(shard)];
  const processId = randomBytes(9).toString('base64url');
  const reach = reachOf(redis, shardKeys.state(shard));

  let waiting: Waiting[] = [];
  let waitingBytes = 0;
  let busy = false;
  let closed = false;
  let sequence = 0;
  const idle: (() => void)[] = [];

  function submitTogether(groups: readonly Group[], settle: Waiting['settle']): void {
    let records = 0;
    let bytes = 0;
    for (const group of groups) {
      records += group.records.length;
      bytes += group.bytes;
    }
    const refuse = (reason: OverloadReason) => settle(groups.map(() => ({ kind: 'overloaded', reason })));
    if (closed) return refuse('stopping');
    if (waitingBytes + bytes > commits.waitingBytesMax) return refuse('too_much_waiting');
    waiting.push({ groups, records, bytes, settle, sinceMs: performance.now() });
    waitingBytes += bytes;
    if (!busy) {
      busy = true;
      // All requests that are parsed in this turn of the event loop go together.
      setImmediate(() => void drain());
    }
  }

  async function drain(): Promise<void> {
    while (waiting.length > 0) {
      const batch = takeBatch();
      const started = performance.now();
      const results = await commit(batch).catch((fault: unknown) => always({ kind: 'failed', fault }));
      commitSeconds.observe((performance.now() - started) / 1000);
      let index = 0;
      crash('commit_answered');
      for (const { groups, settle } of batch) {
        const its = groups.map(() => results(index++));
        try {
          settle(its);
        } catch (error) {
          // Its own answer is lost; those of all others are not.
          log.error({ shard, fault: describeError(error).name }, 'a result of a commit could not be told');
        }
        crash('group_answered');
      }
    }
    busy = false;
    for (const resolve of idle.splice(0)) resolve();
  }

  function takeBatch(): Waiting[] {
    let count = 0;
    let records = 0;
    let bytes = 0;
    for (const next of waiting) {
      const fits = records + next.records <= commits.recordsMax && bytes + next.bytes <= commits.bytesMax;
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

  /** Makes one commit, repeating it under its number until it is answered or its deadline is past. */
  async function commit(batch: Waiting[]): Promise<(index: number) => CommitResult> {
    sequence += 1;
    const groups = batch.flatMap((waits) => waits.groups);
    const packed = packGroups(groups);
    const args = [
      options.epoch,
      sequence,
      options.backlogBytesMax,
      options.segmentBytesMax,
      processId,
      packed.decisions,
      options.segmentAgeMsMax + commits.overdueSegmentMsMax,
      ...tables.flatMap((table, index) => [table, markerRows[table], packed.rows[index] ?? '']),
    ];
    crash('commit_packed');
    const deadline = (batch[0] as Waiting).sinceMs + commits.deadlineMs;
    let sent = false;
    for (let left = deadline - performance.now(); left > 0; left = deadline - performance.now()) {
      if (await reach.reaches()) {
        if (sent) commitRepeats.inc();
        const reply = await attempt(args, left);
        if (reply.kind !== 'answer') reach.doubt();
        if (reply.kind === 'answer') {
          // An earlier copy may still arrive, when there is room.
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

  /** One sending of a commit, given up after `leftMs` at the latest. */
  async function attempt(args: (string | number | Buffer)[], leftMs: number): Promise<Reply> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_, reject) => {
      const giveUp = () => reject(new Error('no reply in time'));
      // Timers come before what has arrived: a process that was stopped for a while first looks at its replies.
      timer = setTimeout(() => setImmediate(giveUp), Math.min(leftMs, commits.attemptMs));
    });
    try {
      const reply = runScript(redis, scripts.commit, keys, args);
      crash('commit_sent');
      return { kind: 'answer', text: String(await Promise.race([reply, silence])) };
    } catch (error) {
      // A reply of Redis that begins with a code comes before the script's first write; anything else
      // (a drop, a time-out, a script that broke) may have come after it.
      const message = error instanceof Error ? error.message : '';
      if (
        /^(?:OOM|MISCONF|LOADING|READONLY|BUSY|MASTERDOWN|NOAUTH|NOPERM|CLUSTERDOWN|TRYAGAIN|MOVED|ASK|Too many Cluster redirections)\b/.test(
          message,
        )
      ) {
        log.warn({ shard, error: describeError(error) }, 'redis refuses commits');
        return { kind: 'refused' };
      }
      if (message.startsWith('ERR'))
        log.error({ shard, error: describeError(error) }, 'the commit script failed');
      // A connection that stays silent may stay so; a new one gets another chance within the deadline.
      else leaveSilent(redis);
      return { kind: 'lost' };
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    submit: (group, settle) => submitTogether([group], ([result]) => settle(result as CommitResult)),
    submitTogether,
    close: async () => {
      closed = true;
      if (busy) await new Promise<void>((resolve) => idle.push(resolve));
    },
  };
}

type Reply = { kind: 'answer'; text: string } | { kind: 'refused' } | { kind: 'lost' };

function always(result: CommitResult): () => CommitResult {
  return () => result;
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
    if (!answer.startsWith('l')) return { kind: 'committed', letters: answer };
    const colon = answer.indexOf(':');
    return {
      kind: 'limited',
      limitIndex: Number(answer.slice(1, colon)),
      waitMs: Number(answer.slice(colon + 1)),
    };
  };
}
