// Sends the records in memory. Each lane gathers records, sends one batch at a time, and keeps it until the service has answered for every
// record of it. A record's lane is determined by its user.

import { judge, type Verdict } from './answers.js';
import { createBackoff } from './backoff.js';
import { createLaneQueue } from './lane.js';
import { producerLimits as limits } from './limits.js';
import type { Settings } from './options.js';
import type { Operation, QueuedRecord } from './records.js';
import type { Problem, Reporter } from './reports.js';
import { type Body, bodyOf, type Transport } from './transport.js';

export type LanesOptions = {
  readonly settings: Settings;
  readonly transport: Transport;
  readonly reporter: Reporter;
  /** Called once for each record, when the service has accepted or refused it. */
  readonly onSettled: (record: QueuedRecord) => void;
};

const endpoints: Readonly<Record<Operation, { readonly path: string; readonly list?: string }>> = {
  track: { path: '/api/track', list: 'events' },
  addUserProperties: { path: '/api/add_user_properties', list: 'users' },
  identify: { path: '/api/v1/identify' },
};

export function createLanes(options: LanesOptions) {
  const { settings } = options;
  const clock = { generation: 0, isStopped: false };
  const onSettled = (record: QueuedRecord): void => {
    options.onSettled(record);
    leave(record);
  };
  const lanes = Array.from({ length: settings.parallelRequests }, () =>
    createLane({ ...options, onSettled }, clock),
  );
  /** How many records are not settled, by the generation in which they were added. */
  const held = new Map<number, number>();
  let waiters: { readonly generation: number; readonly settle: () => void }[] = [];
  let numbers = 0;

  function leave({ generation }: QueuedRecord): void {
    const left = (held.get(generation) ?? 0) - 1;
    if (left > 0) held.set(generation, left);
    else {
      held.delete(generation);
      release();
    }
  }

  function release(): void {
    const oldest = Math.min(...held.keys(), Number.POSITIVE_INFINITY);
    const [done, rest] = [
      waiters.filter((one) => one.generation < oldest),
      waiters.filter((one) => one.generation >= oldest),
    ];
    waiters = rest;
    for (const { settle } of done) settle();
  }

  return {
    /** Takes a record, and sets its number, time and generation. */
    add(record: QueuedRecord): void {
      record.number = numbers++;
      record.takenAt = performance.now();
      record.generation = clock.generation;
      held.set(clock.generation, (held.get(clock.generation) ?? 0) + 1);
      lanes[hashOf(record.user) % lanes.length]?.add(record);
    },
    /** Settles when the service has answered for all records added before. */
    flush(): Promise<void> {
      const { generation } = clock;
      clock.generation++;
      for (const lane of lanes) lane.wake();
      return new Promise((settle) => {
        waiters.push({ generation, settle });
        release();
      });
    },
    stop(): void {
      clock.isStopped = true;
      for (const lane of lanes) lane.wake();
    },
  };
}

function createLane(
  { settings, transport, reporter, onSettled }: LanesOptions,
  clock: { readonly generation: number; readonly isStopped: boolean },
) {
  const queue = createLaneQueue();
  const backoff = createBackoff();
  const authorization =
    settings.writeKey === undefined
      ? undefined
      : `Basic ${Buffer.from(`${settings.appId}:${settings.writeKey}`).toString('base64')}`;
  const appId = JSON.stringify(settings.appId);
  let timer: NodeJS.Timeout | undefined;
  let timerAt = Number.POSITIVE_INFINITY;
  let isSending = false;
  const pauses = new Set<() => void>();
  let isInTrouble = false;

  function wake(): void {
    if (clock.isStopped) for (const end of [...pauses]) end();
    if (isSending) return;
    const dueAt = dueTime();
    if (dueAt === undefined || clock.isStopped) return stopTimer();
    if (dueAt <= performance.now()) {
      stopTimer();
      void sendAll();
    } else if (dueAt < timerAt) {
      stopTimer();
      timerAt = dueAt;
      timer = setTimeout(
        () => {
          stopTimer();
          wake();
        },
        Math.ceil(dueAt - performance.now()),
      );
    }
  }

  function stopTimer(): void {
    clearTimeout(timer);
    timerAt = Number.POSITIVE_INFINITY;
  }

  function dueTime(): number | undefined {
    return queue.dueAt({
      recordsMax: settings.batchRecords,
      bytesMax: limits.batchBytesMax,
      intervalMs: settings.intervalMs,
      generation: clock.generation,
    });
  }

  async function sendAll(): Promise<void> {
    isSending = true;
    while (!clock.isStopped && (dueTime() ?? Number.POSITIVE_INFINITY) <= performance.now()) {
      const batch = queue.choose(performance.now(), settings.batchRecords, limits.batchBytesMax);
      if (batch[0]?.operation !== 'identify') await deliver(batch);
      else {
        // They belong to different users, so they may be sent in parallel.
        for (let at = 0; at < batch.length; at += limits.identificationsMax) {
          const some = batch.slice(at, at + limits.identificationsMax);
          await Promise.all(some.map((record) => deliver([record])));
        }
      }
    }
    isSending = false;
    wake();
  }

  /** Settles when each record is settled or parked, or when the library was stopped. */
  async function deliver(batch: readonly QueuedRecord[]): Promise<void> {
    const records = withoutParked(batch);
    const [first] = records;
    if (first === undefined) return;
    const { path } = endpoints[first.operation];
    const body = await bodyOf(textOf(records), settings.gzip);
    while (!clock.isStopped) {
      const verdict = await ask(path, body);
      if (clock.isStopped) return;
      if (verdict.kind !== 'later') backoff.succeed();
      switch (verdict.kind) {
        case 'settled':
          return settle(records, verdict.refusals);
        case 'refused':
          if (records.length === 1) return settle(records, [{ ...verdict, index: 0 }]);
          return deliverParts(halves(records));
        case 'users_limited':
          if (!isOfOneUser(records)) return deliverParts(apart(records));
          if (!queue.hasParked) reporter.tell('problem', verdict.problem);
          return queue.park(records, performance.now() + verdict.ms);
        case 'later':
          reportProblem(verdict.problem);
          if (tooSlow.has(verdict.problem.code) && records.length > 1) return deliverParts(halves(records));
          await pause(backoff.fail(verdict.ms));
      }
    }
  }

  async function ask(path: string, body: Body): Promise<Verdict> {
    const verdict = judge(await transport.send({ method: 'POST', path, body, authorization }));
    if (verdict.kind !== 'later') isInTrouble = false;
    return verdict;
  }

  async function deliverParts(parts: readonly (readonly QueuedRecord[])[]): Promise<void> {
    for (const part of parts) await deliver(part);
  }

  /** Leaves out records of users who have to wait; an earlier part of the same batch may have reached their limit. */
  function withoutParked(batch: readonly QueuedRecord[]): readonly QueuedRecord[] {
    if (!batch.some(({ user }) => queue.isParked(user))) return batch;
    return batch.filter((record) => {
      const waits = queue.isParked(record.user);
      if (waits) queue.rejoin(record);
      return !waits;
    });
  }

  function textOf(records: readonly QueuedRecord[]): string {
    const [first] = records as readonly [QueuedRecord, ...QueuedRecord[]];
    const { list } = endpoints[first.operation];
    if (list === undefined) return `{"app_id":${appId},${first.text.slice(1)}`;
    return `{"app_id":${appId},"${list}":[${records.map(({ text }) => text).join(',')}]}`;
  }

  function settle(
    records: readonly QueuedRecord[],
    refusals: Extract<Verdict, { kind: 'settled' }>['refusals'],
  ): void {
    for (const { index, code, message, field } of refusals) {
      const record = records[index];
      if (record !== undefined) reporter.refuse(record, code, message, field);
    }
    for (const record of records) onSettled(record);
  }

  /** Reports a problem once, until the service answers again. */
  function reportProblem(problem: Problem): void {
    if (isInTrouble) return;
    isInTrouble = true;
    reporter.tell('problem', problem);
  }

  function pause(ms: number): Promise<void> {
    return new Promise((settle) => {
      const end = (): void => {
        clearTimeout(over);
        pauses.delete(end);
        settle();
      };
      const over = setTimeout(end, ms);
      pauses.add(end);
      if (clock.isStopped) end();
    });
  }

  return {
    add(record: QueuedRecord): void {
      queue.add(record);
      if (!isSending) wake();
    },
    wake,
  };
}

/** Over a slow network fewer bytes may arrive in time. */
const tooSlow: ReadonlySet<string> = new Set(['body_too_slow', 'timeout']);

function halves(records: readonly QueuedRecord[]): (readonly QueuedRecord[])[] {
  const middle = Math.ceil(records.length / 2);
  return [records.slice(0, middle), records.slice(middle)];
}

function isOfOneUser(records: readonly QueuedRecord[]): boolean {
  return records.every(({ user }) => user === records[0]?.user);
}

/**
 * Divides records in two: those of the user with the most records, who has probably reached the limit, and the rest; or two groups of
 * users.
 */
function apart(records: readonly QueuedRecord[]): (readonly QueuedRecord[])[] {
  const counts = new Map<string, number>();
  for (const { user } of records) counts.set(user, (counts.get(user) ?? 0) + 1);
  const users = [...counts.keys()].sort((a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0));
  const isLikely = (counts.get(users[0] as string) ?? 0) * 4 >= records.length;
  const group = new Set(users.slice(0, isLikely ? 1 : Math.ceil(users.length / 2)));
  return [records.filter(({ user }) => group.has(user)), records.filter(({ user }) => !group.has(user))];
}

/** FNV-1a over UTF-16 units. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}
