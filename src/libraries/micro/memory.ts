// What sluice-micro keeps in memory instead of storing it: accepted records, as rows of the tables, and refused ones. It replaces the
// commit, so everything before that is the service's own code. It is limited: the oldest entries are forgotten first.

import type { Receipt } from '../../contract/answers.js';
import { micro } from '../../contract/limits.js';
import type { OutcomeCode } from '../../contract/outcomes.js';
import { recordColumns, tables } from '../../contract/records.js';
import type { Committer } from '../../ingest/commit.js';
import { asUuid } from '../../ingest/event-id.js';
import { type Records, viewOf } from '../../ingest/pack.js';

export type Fields = Readonly<Record<string, unknown>>;

export type Refused = {
  readonly code: OutcomeCode;
  readonly message: string;
  readonly field?: string;
  readonly app_id?: string;
  /** The path or, once the environment is known, the name of the endpoint. */
  readonly endpoint: string;
  /** The index in a bulk request or a batch. */
  readonly index?: number;
  /** What was read: the record, or the whole request. */
  readonly value?: unknown;
};

/** The kept entries of one kind, and how many were forgotten for lack of room. */
export type List = ReturnType<typeof createList>;

export function createMemory() {
  const events = createList();
  const rejected = createList();
  /** The records that were accepted with keys, by event id; undefined for a record that was deleted. */
  let keys = new Map<string, Fields | undefined>();
  const keyOf = new WeakMap<Fields, string>();

  /** Keeps a record. Returns the letter that a commit would give as its answer. */
  function take(records: Records, at: number, into: Buffer): 's' | 'r' {
    const key = records.claimOf(at);
    if (key !== undefined) {
      if (keys.has(key)) return 'r';
      if (keys.size >= micro.keysMax) keys.delete(keys.keys().next().value as string);
    }
    const text = into.toString('utf8', 0, records.write({ into, view: viewOf(into) }, 0, at, at + 1, 0));
    const table = tables[records.tableOf(at)] as keyof typeof recordColumns;
    const receivedAt = new Date().toISOString();
    const values = JSON.parse(`${text}]`) as unknown[];
    const columns = Object.keys(recordColumns[table]).map((name, place) => [name, values[place]]);
    const { event_id: _, user_id, ...row } = Object.fromEntries(columns) as Record<string, unknown>;
    const entry = {
      table,
      ...row,
      user_id: user_id === null ? null : String(user_id),
      received_at: receivedAt,
    };
    const kept = table === 'user_identities' ? entry : { ...entry, time: timeOf(row.time) ?? receivedAt };
    events.add(kept, text.length);
    if (key !== undefined) {
      keys.set(key, kept);
      keyOf.set(kept, key);
    }
    return 's';
  }

  function remove(where: (entry: Fields) => boolean): readonly Fields[] {
    const removed = events.remove(where);
    for (const entry of removed) {
      const key = keyOf.get(entry);
      if (key !== undefined) keys.set(key, undefined);
    }
    return removed;
  }

  const committer: Committer = {
    submit({ groups }, settle) {
      const letters = groups.map(({ records }) => {
        const into = Buffer.allocUnsafe(records.rowBytesMax);
        return Array.from({ length: records.length }, (_, at) => take(records, at, into)).join('');
      });
      // In a later turn of the event loop, as a commit does.
      setImmediate(() => settle(letters.map((each) => ({ kind: 'committed', letters: each }))));
    },
    close: async () => undefined,
  };

  return {
    events: { ...events, remove },
    rejected,
    committer,
    /** What has happened to the record with this event id. */
    receiptOf: (id: string): Omit<Receipt, 'idempotency_key'> => {
      const entry = keys.get(id);
      if (entry === undefined) return { status: keys.has(id) ? 'deleted' : 'unknown' };
      return { status: 'stored', event_id: asUuid(id), segment: '1', accepted_at: String(entry.received_at) };
    },
    /** Forgets everything, including keys. */
    reset(): void {
      events.clear();
      rejected.clear();
      keys = new Map();
    },
  };
}

/** A time as requests write it; rows have times in ClickHouse's form. */
function timeOf(time: unknown): string | undefined {
  return typeof time === 'string' ? `${time.replace(' ', 'T')}Z` : undefined;
}

function createList() {
  /** The entries with their bytes, the oldest first. */
  const kept = new Map<Fields, number>();
  let bytes = 0;
  let dropped = 0;

  function forget(entry: Fields): void {
    bytes -= kept.get(entry) ?? 0;
    kept.delete(entry);
  }

  return {
    add(entry: Fields, size: number): void {
      kept.set(entry, size);
      bytes += size;
      for (const oldest of kept.keys()) {
        if (kept.size <= micro.entriesMax && (bytes <= micro.bytesMax || kept.size === 1)) break;
        forget(oldest);
        dropped += 1;
      }
    },
    all: (): Fields[] => [...kept.keys()],
    /** Returns the entries that were removed. */
    remove(where: (entry: Fields) => boolean): readonly Fields[] {
      const removed = [...kept.keys()].filter(where);
      removed.forEach(forget);
      return removed;
    },
    dropped: () => dropped,
    clear(): void {
      kept.clear();
      [bytes, dropped] = [0, 0];
    },
  };
}
