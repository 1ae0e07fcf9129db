// One commit on its way to Redis: sent again under the same sequence number until it is answered or its deadline has passed, so that a
// lost reply stores nothing twice.

import { randomBytes } from 'node:crypto';
import { suppressions as bounds } from '../contract/limits.js';
import type { CrashPoint } from '../crash-point.js';
import type { Log } from '../log.js';
import { commitRepeats } from '../metrics.js';
import { dropSilentConnection, probeOf, type Redis } from '../redis/client.js';
import { classifyRedisFault } from '../redis/faults.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { onlyPrimary, type Primary } from '../redis/take-over.js';
import { createSpareBuffers } from '../spare-buffers.js';
import { commitBatches } from '../tuning.js';
import { inTime } from '../wait.js';
import { type Group, lettersByGroup, packGroups } from './pack.js';

export type CommitResult =
  /**
   * One letter per record: `s` stored, `r` repeat, `k` skipped because its user is suppressed, `u` skipped and its anonymous user
   * not joined for lack of room. The record, or what is left of a skipped one, is in Redis's append-only file.
   */
  | {
      readonly kind: 'committed';
      readonly letters: string;
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
  | 'stopping';

export type AttemptOptions = {
  readonly redis: Redis;
  /** The server to which the connection leads; by default there is only one. */
  readonly primary?: Primary;
  /** Called when a new primary lacks this many answered commits; settles when the process may go on. */
  readonly onLost?: (commits: number) => Promise<void>;
  readonly shard: number;
  /** The epoch of the deployment. A Redis with another epoch or none refuses commits. */
  readonly epoch: string;
  readonly backlogBytesMax: number;
  readonly segmentBytesMax: number;
  /** The age at which a tick seals a segment. */
  readonly segmentAgeMsMax: number;
  readonly crash: CrashPoint;
  readonly log: Log;
};

export type Attempts = {
  /**
   * Makes one commit. `versions`: of the suppressions that the process has applied, and of the registry in which the environments were
   * found. If the shard has later suppressions, nothing is stored, and it settles with the version that has to be applied first.
   */
  make(
    groups: readonly Group[],
    versions: { readonly suppressions: number; readonly registry: number },
    deadline: number,
  ): Promise<readonly CommitResult[] | { readonly version: number }>;
  /** Ends the watch for another primary. */
  stop(): void;
};

/** For the rows of the commits of all shards. */
const spares = createSpareBuffers({
  bytesMin: commitBatches.bytesMax / 16,
  stepBytes: commitBatches.bytesMax / 4,
  keptBytesMax: 4 * commitBatches.bytesMax,
});

/** How often to check for a new primary while nothing is committed. */
const watchEveryMs = 1_000;

/** Makes the commits of one process to one shard, one after another. */
export function createAttempts(options: AttemptOptions): Attempts {
  const { redis, shard, crash, log, primary = onlyPrimary, onLost = async () => undefined } = options;
  const keys = [shardKeys.state(shard), shardKeys.segments(shard), shardKeys.answers(shard)];
  const processId = randomBytes(9).toString('base64url');
  const probe = probeOf(redis, shardKeys.state(shard));
  let sequence = 0;
  /** The last commit that was answered, and its deadline. */
  let answered = 0;
  let answeredMs = 0;
  /** The primary that is known to have that commit, and the load from which its state came. */
  let checkedPrimary: string | undefined = '';
  let knownLoad: string | null | undefined;

  let checking: Promise<boolean> | undefined;

  /** Checks whether a new primary lacks commits that the former one answered. Settles with false if it could not be checked yet. */
  function checkPrimary(): Promise<boolean> {
    checking ??= compareWithPrimary().finally(() => {
      checking = undefined;
    });
    return checking;
  }

  // A shard that gets no more commits may also have lost some.
  const watch = setInterval(() => {
    if (answered > 0 && primary.id(shard) !== checkedPrimary) void checkPrimary();
  }, watchEveryMs).unref();

  async function compareWithPrimary(): Promise<boolean> {
    const id = primary.id(shard);
    if (id === undefined) return false;
    try {
      const load = await redis.hget(shardKeys.state(shard), 'load');
      const kept = await redis.hget(shardKeys.answers(shard), processId);
      // A Redis that was emptied and loaded again has lost all answers, and that loss is known already. Answers also expire.
      if (
        kept === null &&
        (load !== knownLoad || answeredMs < performance.now() - commitBatches.answerKeptMs / 2)
      )
        answered = 0;
      const lost = answered - Number(kept?.split(' ', 1)[0] ?? 0);
      if (answered > 0 && lost > 0) {
        await onLost(lost);
        answered = 0;
      }
      knownLoad = load;
    } catch (error) {
      log.warn({ shard, error }, 'the new primary of redis cannot be compared');
      return false;
    }
    checkedPrimary = id;
    return primary.id(shard) === id;
  }

  const make: Attempts['make'] = async (groups, versions, deadline) => {
    sequence += 1;
    const packed = packGroups(groups, spares.take);
    const args = [
      options.epoch,
      sequence,
      options.backlogBytesMax,
      options.segmentBytesMax,
      processId,
      packed.decisions,
      options.segmentAgeMsMax + commitBatches.overdueSegmentMsMax,
      versions.suppressions,
      bounds.joinsWaitingMax,
      versions.registry,
      ...packed.tables,
    ];
    crash('commit_packed');
    const leftMs = () => deadline - performance.now();
    let sent = false;
    while (leftMs() > 0) {
      const isReachable = await probe.isReachable(leftMs());
      // A silent server is not waited for longer than the commit may take.
      const isChecked =
        primary.id(shard) === checkedPrimary ||
        (isReachable && (await inTime(checkPrimary(), leftMs(), false)));
      if (isReachable && isChecked) {
        if (sent) commitRepeats.inc();
        const reply = await attempt(args, leftMs());
        if (reply.kind === 'answer') {
          // Redis has read all of the only copy. Of several, one may still be on its way.
          if (!sent) for (const buffer of packed.buffers) spares.give(buffer);
          if (reply.text.startsWith('v')) return { version: Number(reply.text.slice(1)) };
          const refused = reply.text === 'o' || reply.text === 'e';
          if (!refused && reply.text !== 'x') {
            answered = sequence;
            answeredMs = deadline;
          }
          // An earlier copy of this commit may still arrive, at a time when there is room.
          return sent && refused ? forAll(groups, { kind: 'unknown' }) : readAnswer(reply.text, groups);
        }
        probe.markSuspect();
        if (reply.kind === 'refused' && !sent)
          return forAll(groups, { kind: 'overloaded', reason: 'redis_refuses' });
        if (reply.kind === 'lost') sent = true;
      }
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    log.warn({ shard, groups: groups.length, sent }, 'commit not answered before its deadline');
    return forAll(groups, sent ? { kind: 'unknown' } : { kind: 'overloaded', reason: 'redis_unreachable' });
  };

  /** Sends a commit once. Gives up after `leftMs` at the latest. */
  async function attempt(args: (string | number | Buffer)[], leftMs: number): Promise<Reply> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_, reject) => {
      const giveUp = () => reject(new Error('no reply in time'));
      // A timer runs before the replies that have arrived are read. So a process that was paused reads them before it gives up.
      timer = setTimeout(() => setImmediate(giveUp), Math.min(leftMs, commitBatches.attemptMs));
    });
    try {
      const reply = runScript(redis, scripts.commit, keys, args);
      crash('commit_sent');
      return { kind: 'answer', text: String(await Promise.race([reply, silence])) };
    } catch (error) {
      const kind = classifyRedisFault(error);
      if (kind === 'full' || kind === 'refused') {
        log.warn({ shard, error }, 'redis refuses commits');
        return { kind: 'refused' };
      }
      if (kind === 'broken') log.error({ shard, error }, 'the commit script failed');
      // A silent connection may stay silent. A new one gives the commit another chance within the deadline.
      else if (kind !== 'not_on_replicas') dropSilentConnection(redis);
      return { kind: 'lost' };
    } finally {
      clearTimeout(timer);
    }
  }

  return { make, stop: () => clearInterval(watch) };
}

type Reply = { kind: 'answer'; text: string } | { kind: 'refused' } | { kind: 'lost' };

export function forAll(groups: readonly unknown[], result: CommitResult): CommitResult[] {
  return groups.map(() => result);
}

/** Throws if there are not as many letters as the group has records. */
function committed(answer: string, { records }: Group): CommitResult {
  if (answer.length !== records.length) throw new Error('the commit script answered for other records');
  return { kind: 'committed', letters: answer.replaceAll('d', 'r') };
}

/** The result of most groups: one record, stored. */
const oneStored: CommitResult = { kind: 'committed', letters: 's' };

/** The results of the groups. Throws if the script answered for other groups. */
function readAnswer(text: string, groups: readonly Group[]): readonly CommitResult[] {
  switch (text) {
    case 'e':
      return forAll(groups, { kind: 'overloaded', reason: 'state_not_loaded' });
    case 'o':
      return forAll(groups, { kind: 'overloaded', reason: 'backlog_full' });
    case 'x':
      return forAll(groups, { kind: 'unknown' });
    case '*':
      return groups.map(({ records: { length } }) =>
        length === 1 ? oneStored : { kind: 'committed', letters: 's'.repeat(length) },
      );
  }
  if (text.startsWith('='))
    return lettersByGroup(text.slice(1), groups).map((letters, index) =>
      committed(letters, groups[index] as Group),
    );
  const answers = text.split(',');
  if (answers.length !== groups.length) throw new Error('the commit script answered for other groups');
  return answers.map((answer, index) => {
    if (!answer.startsWith('l')) return committed(answer, groups[index] as Group);
    const colon = answer.indexOf(':');
    return {
      kind: 'limited',
      limitIndex: Number(answer.slice(1, colon)),
      waitMs: Number(answer.slice(colon + 1)),
    };
  });
}
