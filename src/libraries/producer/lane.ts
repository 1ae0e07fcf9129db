// The queue of one lane. All records of a user are in one lane, and a lane sends one batch at a time, so each user's order is kept while
// lanes send in parallel. Records of a user whose limit is reached are set aside and hold up no other user.

import type { Operation, QueuedRecord } from './records.js';

type DueBounds = {
  readonly recordsMax: number;
  readonly bytesMax: number;
  readonly intervalMs: number;
  /** Records that an earlier flush is waiting for are sent at once. */
  readonly generation: number;
};

/** `records`: in the order of the calls. */
type Parked = { untilMs: number; readonly records: QueuedRecord[] };

/** A batch searches for records of its operation among this many times its maximum of records. */
const looksPerBatch = 4;

export function createLaneQueue() {
  const parked = new Map<string, Parked>();
  let waiting: QueuedRecord[] = [];
  /** How many records at the beginning of `waiting` were already taken. */
  let head = 0;
  let bytes = 0;

  /** The first records of a list that may share a request: of one operation, and without overtaking other records of their users. */
  function pick(list: readonly QueuedRecord[], from: number, recordsMax: number, bytesMax: number) {
    const operation = list[from]?.operation as Operation;
    const chosen: QueuedRecord[] = [];
    const passed: QueuedRecord[] = [];
    const blocked = new Set<string>();
    let chosenBytes = 0;
    let at = from;
    const end = Math.min(list.length, from + looksPerBatch * recordsMax);
    for (; at < end && chosen.length < recordsMax; at++) {
      const record = list[at] as QueuedRecord;
      // Users are looked up only once one of them has to wait, since usually all records are events.
      const waits = record.operation !== operation || (blocked.size > 0 && blocked.has(record.user));
      // Each identification is a request of its own, so each user can have only one under way.
      const repeats = operation === 'identify' && chosen.some(({ user }) => user === record.user);
      if (waits || repeats) {
        blocked.add(record.user);
        passed.push(record);
        continue;
      }
      if (chosen.length > 0 && chosenBytes + record.bytes > bytesMax) break;
      chosen.push(record);
      chosenBytes += record.bytes + 1;
    }
    return { chosen, passed, at };
  }

  function chooseParked(nowMs: number, recordsMax: number, bytesMax: number): QueuedRecord[] | undefined {
    for (const [user, entry] of parked) {
      if (entry.untilMs > nowMs) continue;
      const { chosen, passed, at } = pick(entry.records, 0, recordsMax, bytesMax);
      entry.records.splice(0, at, ...passed);
      if (entry.records.length === 0) parked.delete(user);
      return chosen;
    }
    return undefined;
  }

  /** The oldest record that may be sent, and by when it has to be sent. */
  function chooseWaiting(recordsMax: number, bytesMax: number): QueuedRecord[] {
    if (head === waiting.length) return [];
    const { chosen, passed, at } = pick(waiting, head, recordsMax, bytesMax);
    for (const record of chosen) bytes -= record.bytes;
    head = at - passed.length;
    for (const [index, record] of passed.entries()) waiting[head + index] = record;
    if (head > 1_000 && head * 2 > waiting.length) {
      waiting = waiting.slice(head);
      head = 0;
    }
    return chosen;
  }

  return {
    add(record: QueuedRecord): void {
      const entry = parked.size === 0 ? undefined : parked.get(record.user);
      if (entry !== undefined) {
        entry.records.push(record);
        return;
      }
      waiting.push(record);
      bytes += record.bytes;
    },
    /** Sets records of one user aside until a time, together with all other waiting records of that user. */
    park(records: readonly QueuedRecord[], untilMs: number): void {
      const user = records[0]?.user as string;
      const entry = parked.get(user) ?? { untilMs, records: [] };
      entry.untilMs = untilMs;
      entry.records.push(...records);
      parked.set(user, entry);
      const rest = waiting.slice(head);
      waiting = [];
      head = 0;
      for (const record of rest) {
        if (record.user !== user) waiting.push(record);
        else {
          bytes -= record.bytes;
          entry.records.push(record);
        }
      }
      entry.records.sort((a, b) => a.number - b.number);
    },
    isParked: (user: string) => parked.has(user),
    get hasParked(): boolean {
      return parked.size > 0;
    },
    /** Puts a chosen record back among its user's set-aside records. */
    rejoin(record: QueuedRecord): void {
      const { records } = parked.get(record.user) as Parked;
      records.push(record);
      records.sort((a, b) => a.number - b.number);
    },
    /** Takes the records of the next request, in order; none if nothing is waiting. */
    choose: (nowMs: number, recordsMax: number, bytesMax: number) =>
      chooseParked(nowMs, recordsMax, bytesMax) ?? chooseWaiting(recordsMax, bytesMax),
    /** When the next request should be sent, by the steady clock; undefined if no record is waiting. */
    dueAt({ recordsMax, bytesMax, intervalMs, generation }: DueBounds): number | undefined {
      let dueAt: number | undefined;
      const oldest = waiting[head];
      if (oldest !== undefined) {
        const isFull = waiting.length - head >= recordsMax || bytes >= bytesMax;
        dueAt = isFull || oldest.generation < generation ? 0 : oldest.takenAt + intervalMs;
      }
      for (const { untilMs } of parked.values()) dueAt = Math.min(dueAt ?? untilMs, untilMs);
      return dueAt;
    },
  };
}
