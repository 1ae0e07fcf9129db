// The checker of the fault harness, tried on histories made by hand: deletions, limits, statuses, answers, and a Redis that was
// emptied. Its verdicts on keys and rows are in faults-checker.test.ts.

import assert from 'node:assert/strict';
import { createHash, createHmac } from 'node:crypto';
import { test } from 'node:test';
import { Redis } from '../../src/packages/ioredis.js';
import { scripts } from '../../src/redis/scripts.js';
import { type Evidence, findBroken } from '../chaos/check.js';
import type { Submission } from '../chaos/deletions.js';
import { commitScriptOf, mutants, patchedText } from '../chaos/mutants.js';
import { readTrace } from '../chaos/power-cut.js';
import { canSetRedisClock, createRedisClock } from '../chaos/redis-clock.js';
import { without } from '../chaos/shrink.js';
import type { Endpoint, SentEvent } from '../harness/endpoints.js';
import type { StoredEvent } from '../harness/exactly-once.js';
import type { Invocation, Outcome, Settlement } from '../harness/load.js';
import { startRedis } from '../harness/services.js';
import { commit, eventRecord, group, loadShard } from '../support/shard.js';

type Entry = Invocation & Partial<Settlement>;

let requests = 0;

function sent(
  endpoint: Endpoint,
  event: SentEvent,
  [invokedMs, settledMs]: readonly [number, number],
  outcome: Outcome = 'acknowledged',
  more: Partial<Settlement> = {},
): Entry {
  requests += 1;
  const settlement = { settledMs, outcome, status: 200, code: '', refusedIndexes: [], ...more };
  return { request: requests, endpoint, invokedMs, events: [event], ...settlement };
}

function eventOf(marker: string, identity = 'ada', key?: string): SentEvent {
  const keyed = key === undefined ? {} : { idempotency_key: key };
  return { event: 'Seen', identity, properties: { marker }, ...keyed };
}

function eventOfUserId(marker: string, userId: string): SentEvent {
  return { event: 'Seen', user_id: userId, properties: { marker } };
}

function merge(userId: string, identity: string): SentEvent {
  const marker = `${userId} is ${identity}`;
  return { kind: 'identify', event: '', user_id: userId, identity, properties: { marker } };
}

let ids = 0;

function rowOf(event: SentEvent, receivedMs = 1): StoredEvent {
  ids += 1;
  return {
    ...(event.kind === undefined ? {} : { kind: event.kind }),
    event_id: `id ${ids}`,
    event: event.event,
    user_id: event.user_id ?? null,
    identity: event.identity ?? '',
    session_id: '',
    time_ms: String(receivedMs),
    received_ms: String(receivedMs),
    properties: Object.fromEntries(
      Object.entries(event.properties).map(([key, value]) => [key, String(value)]),
    ),
  };
}

function deletion(
  users: Submission['users'],
  [invokedMs, settledMs]: readonly [number, number],
  more: Partial<Submission> = {},
): Submission {
  const polls = [{ invokedMs: settledMs + 1, settledMs: settledMs + 2, status: 'complete' }];
  const answer = { outcome: 'accepted', status: 201, requestId: 'a', polls } as const;
  return { users, invokedMs, settledMs, ...answer, ...more };
}

function kinds(
  history: readonly Entry[],
  rows: readonly StoredEvent[],
  submissions: readonly Submission[] = [],
  more: Partial<Evidence> = {},
): string[] {
  const environments = [{ appId: '1', history, rows }];
  const account = { appIds: ['1'] };
  return findBroken({ account, environments, submissions, emptied: [], apiDisturbed: false, ...more }).map(
    ({ kind }) => kind,
  );
}

const ada = [{ identity: 'ada' }];

/** A loss of Redis in which these records and no others were lost, and no deletion was kept. */
function lossOf(fromMs: number, toMs: number, ...markers: readonly string[]) {
  return { fromMs, toMs, markers: new Set(markers), keptDeletions: new Set<string>() };
}

const poll = (invokedMs: number, status: string) => ({ invokedMs, settledMs: invokedMs + 1, status });

test('records that were acknowledged before a deletion was submitted have to be gone', () => {
  const event = eventOf('a');
  const history = [sent('track', event, [0, 1])];
  assert.deepEqual(kinds(history, [], [deletion(ada, [2, 3])]), []);
  assert.deepEqual(kinds(history, [rowOf(event)], [deletion(ada, [2, 3])]), ['resurrected']);
});

test('records that were seen of users who were hidden or gone by then break the promise', () => {
  const [gone, later] = [eventOf('a'), eventOf('b')];
  const history = [sent('track', gone, [0, 1]), sent('track', later, [4, 5])];
  const kind = 'left on the disk';
  const seen = (rows: readonly StoredEvent[], ...ids: string[]) =>
    kinds(history, [rowOf(later)], [deletion(ada, [2, 3])], {
      sights: [{ kind, appId: '1', rows, requestIds: new Set(ids) }],
    });
  assert.deepEqual(seen([rowOf(gone)], 'a'), [kind]);
  assert.deepEqual(seen([rowOf(gone)], 'another'), []);
  assert.deepEqual(seen([rowOf(later)], 'a'), []);
});

test('a deleted record that is sent again may be stored once if its key may be looked up after the loss of the index of keys', () => {
  const event = eventOf('a', 'ada', 'k');
  const history = [sent('track', event, [0, 1]), sent('track', event, [8, 9])];
  const found = (rows: readonly StoredEvent[], indexLostMs: readonly number[], deletedMs = 2) =>
    kinds(history, rows, [deletion(ada, [deletedMs, deletedMs + 1])], { indexLostMs });
  assert.deepEqual(found([rowOf(event)], []), ['resurrected']);
  for (const lostMs of [7, 10])
    for (const rows of [[], [rowOf(event)]]) assert.deepEqual(found(rows, [lostMs]), []);
  assert.deepEqual(found([rowOf(event)], [20_000]), ['resurrected'], 'it was looked up before the loss');
  assert.deepEqual(found([rowOf(event)], [7], 10), ['resurrected'], 'it was sent before the deletion');
  assert.deepEqual(found([rowOf(event), rowOf(event)], [7]), ['doubled']);
});

test('records that were sent after the answer to a submission have to stay', () => {
  const event = eventOf('a');
  const history = [sent('track', event, [4, 5])];
  assert.deepEqual(kinds(history, [rowOf(event)], [deletion(ada, [2, 3])]), []);
  assert.deepEqual(kinds(history, [], [deletion(ada, [2, 3])]), ['over-deleted']);
});

test('records that were or may have been under way together with a submission may be there or not', () => {
  const event = eventOf('a');
  for (const times of [
    [1, 4],
    [2, 3],
    [0, 2.5],
  ] as const) {
    const history = [sent('track', event, times)];
    assert.deepEqual(kinds(history, [], [deletion(ada, [2, 3])]), []);
    assert.deepEqual(kinds(history, [rowOf(event)], [deletion(ada, [2, 3])]), []);
  }
  const unknown = [sent('track', event, [0, 1], 'unknown')];
  assert.deepEqual(kinds(unknown, [rowOf(event)], [deletion(ada, [2, 3])]), []);
});

test('a submission without an answer may have deleted, a refused one may not', () => {
  const event = eventOf('a');
  const history = [sent('track', event, [0, 1])];
  const perhaps = deletion(ada, [2, 3], { outcome: 'perhaps', polls: [] });
  assert.deepEqual(kinds(history, [], [perhaps]), []);
  assert.deepEqual(kinds(history, [rowOf(event)], [perhaps]), []);
  const refused = deletion(ada, [2, 3], { outcome: 'refused', status: 503, polls: [] });
  assert.deepEqual(kinds(history, [], [refused]), ['lost']);
});

test('other users, and the same names in other accounts, have to stay', () => {
  const other = eventOf('a', 'adam');
  assert.deepEqual(kinds([sent('track', other, [0, 1])], [], [deletion(ada, [2, 3])]), ['lost']);
  const event = eventOf('a');
  const history = [sent('track', event, [0, 1])];
  const stranger = { account: { appIds: ['2'] } };
  assert.deepEqual(kinds(history, [], [deletion(ada, [2, 3])], stranger), ['lost']);
});

test('a merged user goes as a whole, but not a user who was merged after the answer', () => {
  const merged = merge('7', 'ada');
  const event = eventOfUserId('a', '7');
  const before = [sent('identify', merged, [0, 1]), sent('track', event, [0, 1])];
  assert.deepEqual(kinds(before, [], [deletion(ada, [2, 3])]), []);
  assert.deepEqual(kinds(before, [rowOf(event)], [deletion(ada, [2, 3])]), ['resurrected']);
  assert.deepEqual(kinds(before, [], [deletion([{ user_id: 7 }], [2, 3])]), []);
  const after = [sent('track', event, [0, 1]), sent('identify', merged, [4, 5])];
  assert.deepEqual(kinds(after, [rowOf(event), rowOf(merged)], [deletion(ada, [2, 3])]), []);
  assert.deepEqual(kinds(after, [rowOf(merged)], [deletion(ada, [2, 3])]), ['lost']);
});

test('an identification under the fence of an earlier deletion is not there for a later one', () => {
  const merged = merge('7', 'ada');
  const [before, ofUserId, ofIdentity] = [eventOfUserId('a', '7'), eventOfUserId('b', '7'), eventOf('c')];
  const history = [
    sent('identify', merged, [0, 1]),
    sent('track', before, [2, 3]),
    sent('track', ofUserId, [6, 7]),
    sent('track', ofIdentity, [6, 7]),
  ];
  const seven = [{ user_id: 7 }];
  // It makes no difference whether the earlier deletion was complete when the later one was submitted.
  for (const completeMs of [5.5, 50]) {
    const polls = [{ invokedMs: completeMs, settledMs: completeMs, status: 'complete' }];
    for (const first of [ada, seven]) {
      const earlier = deletion(first, [4, 5], { polls });
      assert.deepEqual(kinds(history, [rowOf(ofIdentity)], [earlier, deletion(seven, [8, 9])]), []);
      assert.deepEqual(kinds(history, [rowOf(ofUserId)], [earlier, deletion(ada, [8, 9])]), []);
      assert.deepEqual(kinds(history, [], [earlier, deletion(seven, [8, 9])]), ['over-deleted']);
      const both = [rowOf(ofUserId), rowOf(ofIdentity)];
      assert.deepEqual(kinds(history, both, [earlier, deletion(seven, [8, 9])]), ['resurrected']);
      assert.deepEqual(kinds(history, [...both, rowOf(merged)], [earlier]), ['resurrected']);
      assert.deepEqual(kinds(history, [...both, rowOf(before)], [earlier]), ['resurrected']);
    }
  }
});

test('an identification that was sent again under its key is the one that was acknowledged first', () => {
  const merged = merge('7', 'ada');
  const event = eventOfUserId('a', '7');
  const history = [
    sent('collect', merged, [0, 1], 'unknown'),
    sent('collect', merged, [2, 3]),
    sent('collect', merged, [6, 7]),
    sent('track', event, [6, 7]),
  ];
  const submissions = [deletion(ada, [4, 5]), deletion(ada, [8, 9])];
  assert.deepEqual(kinds(history, [rowOf(event)], submissions), []);
  assert.deepEqual(kinds(history, [], submissions), ['over-deleted']);
  // If Redis forgot the key, the repeat may count as a new identification.
  const late = eventOfUserId('b', '7');
  const forgotten = [
    sent('collect', merged, [2, 3]),
    sent('collect', merged, [10, 11]),
    sent('track', late, [10, 11]),
  ];
  const emptied = [lossOf(8, 9)];
  const around = [deletion(ada, [4, 5]), deletion(ada, [12, 13])];
  for (const rows of [[rowOf(late)], []]) assert.deepEqual(kinds(forgotten, rows, around, { emptied }), []);
  assert.deepEqual(kinds(forgotten, [], around), ['over-deleted']);
});

test('an identification may or may not exist for a deletion if its order with another deletion is unknown', () => {
  const merged = merge('7', 'ada');
  const later = eventOf('b');
  const history = [sent('identify', merged, [0, 1]), sent('track', later, [6, 7])];
  const seven = [{ user_id: 7 }];
  const open: readonly Partial<Submission>[] = [{ outcome: 'perhaps', polls: [] }, { settledMs: 8.5 }];
  for (const more of open) {
    const earlier = deletion(ada, [4, 5], more);
    for (const rows of [[rowOf(later)], []]) {
      assert.deepEqual(kinds(history, rows, [earlier, deletion(seven, [8, 9])]), []);
    }
  }
});

test('a deleted user may be identified again, and then goes with the new identity', () => {
  const again = merge('7', 'eve');
  const [ofUserId, ofEve, ofAda] = [eventOfUserId('a', '7'), eventOf('b', 'eve'), eventOf('c')];
  const history = [
    sent('identify', merge('7', 'ada'), [0, 1]),
    ...[again, ofUserId, ofEve, ofAda].map((event) => sent(event.kind ?? 'track', event, [6, 7])),
  ];
  const submissions = [deletion(ada, [4, 5]), deletion([{ identity: 'eve' }], [8, 9])];
  assert.deepEqual(kinds(history, [rowOf(ofAda)], submissions), []);
  assert.deepEqual(kinds(history, [], submissions), ['over-deleted']);
  assert.deepEqual(kinds(history, [rowOf(ofAda), rowOf(ofUserId)], submissions), ['resurrected']);
});

test('the first identification of a user_id counts', () => {
  const event = eventOfUserId('a', '7');
  const [first, second] = [merge('7', 'ada'), merge('7', 'eve')];
  const history = [
    sent('track', event, [0, 1]),
    sent('identify', first, [2, 3]),
    sent('identify', second, [4, 5]),
  ];
  const eve = deletion([{ identity: 'eve' }], [6, 7]);
  assert.deepEqual(kinds(history, [rowOf(event), rowOf(first)], [eve]), []);
  assert.deepEqual(kinds(history, [rowOf(first)], [eve]), ['lost']);
  assert.deepEqual(kinds(history, [rowOf(event)], [deletion(ada, [6, 7])]), ['resurrected']);
  // Either of two that were under way at once may be the first.
  const atOnce = [
    sent('track', event, [0, 1]),
    sent('identify', first, [2, 5]),
    sent('identify', second, [3, 4]),
  ];
  for (const rows of [[rowOf(event)], []]) {
    assert.deepEqual(kinds(atOnce, [rowOf(first), ...rows], [eve]), []);
  }
});

test('a merge that went with an emptied Redis may be forgotten by a later deletion, or not', () => {
  const merged = merge('7', 'ada');
  const event = eventOfUserId('a', '7');
  const history = [sent('identify', merged, [0, 1]), sent('track', event, [0, 1])];
  const emptied = [lossOf(2, 3, '7 is ada')];
  for (const rows of [[rowOf(event)], []]) {
    assert.deepEqual(kinds(history, rows, [deletion(ada, [4, 5])], { emptied }), []);
  }
  assert.deepEqual(kinds(history, [rowOf(event)], [deletion(ada, [4, 5])]), ['resurrected']);
});

test('a repeat of a deleted record is not stored', () => {
  const event = eventOf('a', 'ada', 'key');
  const history = [sent('track', event, [0, 1]), sent('track', event, [4, 5])];
  assert.deepEqual(kinds(history, [], [deletion(ada, [2, 3])]), []);
  assert.deepEqual(kinds(history, [rowOf(event)], [deletion(ada, [2, 3])]), ['resurrected']);
});

test('records that only Redis had when it was emptied may be missing, and their repeats stored, but no key twice', () => {
  const emptied = [lossOf(2, 3, 'a')];
  const lost = eventOf('a');
  const kept = eventOf('b');
  const history = [sent('track', lost, [0, 1]), sent('track', kept, [0, 1])];
  assert.deepEqual(kinds(history, [rowOf(kept)], [], { emptied }), []);
  assert.deepEqual(kinds(history, [rowOf(lost)], [], { emptied }), ['lost']);
  const keyed = eventOf('c', 'ada', 'key');
  const twice = [sent('track', keyed, [0, 1]), sent('track', keyed, [4, 5])];
  assert.deepEqual(kinds(twice, [rowOf(keyed)], [], { emptied }), []);
  assert.deepEqual(kinds(twice, [rowOf(keyed), rowOf(keyed)], [], { emptied }), ['doubled']);
  assert.deepEqual(kinds(twice, [rowOf(keyed), rowOf(keyed)]), ['doubled']);
  const another = eventOf('d', 'ada', 'key');
  const differently = [sent('track', keyed, [0, 1]), sent('track', another, [4, 5])];
  const ofOneId = [keyed, another].map((event) => ({ ...rowOf(event), event_id: 'one' }));
  assert.deepEqual(kinds(differently, [rowOf(another)], [], { emptied }), []);
  assert.ok(kinds(differently, ofOneId, [], { emptied }).includes('doubled'));
  assert.ok(kinds(differently, ofOneId).includes('doubled'));
});

test('a record that a store lost has to be stored once it is acknowledged again, and its key is free for others', () => {
  const key = eventOf('a', 'ada', 'key');
  const other = eventOf('b', 'ada', 'key');
  const setBack = [{ fromMs: 2, toMs: 6, markers: new Set(['a']) }];
  const found = (second: Entry, rows: readonly StoredEvent[], more: Partial<Evidence> = { setBack }) =>
    kinds([sent('track', key, [0, 1]), second], rows, [], more);
  // Before the recovery a new request counts as a repeat of the record that is gone.
  assert.deepEqual(found(sent('track', key, [4, 5]), []), []);
  for (const again of [key, other]) {
    assert.deepEqual(found(sent('track', again, [7, 8]), []), ['lost']);
    assert.deepEqual(found(sent('track', again, [7, 8]), [rowOf(again)]), []);
    assert.deepEqual(found(sent('track', again, [7, 8]), [rowOf(again), rowOf(again)]), ['doubled']);
  }
  assert.deepEqual(found(sent('track', other, [7, 8]), [rowOf(key), rowOf(other)]), ['doubled']);
  assert.deepEqual(found(sent('track', other, [7, 8]), [rowOf(other)], {}), ['not the first']);
  const kept = [{ fromMs: 2, toMs: 6, markers: new Set(['c']) }];
  assert.deepEqual(found(sent('track', other, [7, 8]), [rowOf(other)], { setBack: kept }), ['not the first']);
  const emptied = [lossOf(2, 6, 'a')];
  assert.deepEqual(found(sent('track', key, [7, 8]), [], { emptied }), ['lost']);
  // A record that is acknowledged again may be lost again.
  const again = [...emptied, lossOf(9, 12, 'b')];
  assert.deepEqual(found(sent('track', other, [7, 8]), [], { emptied: again }), []);
  assert.deepEqual(found(sent('track', other, [13, 14]), [], { emptied: again }), ['lost']);
});

test('a deletion may take the record that had the key next, after a store lost the first one', () => {
  const first = eventOf('a', 'ada', 'key');
  const next = eventOf('b', 'bob', 'key');
  const history = [sent('track', first, [0, 1]), sent('track', next, [7, 8])];
  const found = (users: Submission['users'], markers: readonly string[]) =>
    kinds(history, [], [deletion(users, [9, 10])], {
      emptied: [lossOf(2, 6, ...markers)],
    });
  const bob = [{ identity: 'bob' }];
  assert.deepEqual(found(bob, ['a']), []);
  assert.deepEqual(found([{ identity: 'cleo' }], ['a']), ['lost'], 'nobody deleted it');
  assert.deepEqual(
    found(bob, ['c']),
    ['lost'],
    'the first record was not lost, so the next one was a repeat',
  );
});

test('a record that a store lost need not be stored when it is sent again about a user who is suppressed by then', () => {
  const event = { ...eventOfUserId('a', '7'), idempotency_key: 'key' };
  const emptied = [lossOf(2, 6, 'a')];
  const found = (more: Partial<Evidence>) =>
    kinds([sent('track', event, [0, 1]), sent('track', event, [7, 8])], [], [], { emptied, ...more });
  const user = { user_id: '7', identity: 'ada' };
  assert.deepEqual(found({ suppressed: [{ ...user, fromMs: 1.5 }] }), []);
  assert.deepEqual(found({ suppressed: [{ ...user, fromMs: 9 }] }), ['lost'], 'it was not suppressed yet');
  assert.deepEqual(found({ suppressed: [{ ...user, user_id: '8', fromMs: 1.5 }] }), ['lost'], 'another user');
  assert.deepEqual(found({ suppressed: [{ ...user, fromMs: 1.5 }], account: { appIds: ['2'] } }), ['lost']);
  assert.deepEqual(
    found({ suppressed: [{ ...user, fromMs: 1.5 }], emptied: [] }),
    ['lost'],
    'the record was stored before',
  );
});

test('a request that ClickHouse had with its targets when Redis was emptied has to be completed', () => {
  const event = eventOf('a');
  const history = [sent('track', event, [0, 1])];
  const lossKeeping = (...ids: string[]) => ({ ...lossOf(10, 20), keptDeletions: new Set(ids) });
  const after = (
    polls: Submission['polls'],
    rows: StoredEvent[],
    ids: string[],
    more: Partial<Submission> = {},
  ) => kinds(history, rows, [deletion(ada, [2, 3], { polls, ...more })], { emptied: [lossKeeping(...ids)] });

  assert.deepEqual(after([poll(4, 'pending'), poll(12, '401'), poll(30, 'complete')], [], ['a']), []);
  assert.deepEqual(after([poll(30, 'complete')], [rowOf(event)], ['a']), ['resurrected']);
  assert.deepEqual(after([poll(30, '404'), poll(31, 'complete')], [], ['a']), ['wrong status']);
  assert.deepEqual(after([poll(30, 'pending')], [], ['a']), ['not completed']);
  assert.deepEqual(after([poll(30, 'pending')], [], ['a'], { state: 'targets_lost' }), ['targets lost']);
  // A request that only Redis had may be lost.
  for (const status of ['404', 'pending']) {
    for (const rows of [[], [rowOf(event)]]) {
      assert.deepEqual(after([poll(30, status)], rows, ['b'], { state: 'targets_lost' }), []);
    }
  }
  // A request that came back after a first loss has to come back after a second one.
  const emptied = [lossKeeping('a'), lossOf(40, 50)];
  const twice = [deletion(ada, [2, 3], { polls: [poll(60, 'pending')], state: 'targets_lost' })];
  assert.deepEqual(kinds(history, [], twice, { emptied }), ['targets lost']);
});

test('a request that was reported complete stays complete when Redis is emptied', () => {
  const event = eventOf('a');
  const history = [sent('track', event, [0, 1])];
  const emptied = [lossOf(10, 20)];
  const after = (...polls: Submission['polls']) =>
    kinds(history, [], [deletion(ada, [2, 3], { polls: [poll(5, 'complete'), ...polls] })], { emptied });
  assert.deepEqual(after(poll(30, 'complete')), []);
  assert.deepEqual(after(poll(30, 'pending')), ['status went back']);
  assert.deepEqual(after(poll(30, '404')), ['wrong status']);
  assert.deepEqual(kinds(history, [rowOf(event)], [deletion(ada, [2, 3])], { emptied }), ['resurrected']);
});

test('a window with more records than its limit is reported, a full one is not', () => {
  const windowOf = (count: number, lastMs: number, more: Partial<Evidence> = {}) => {
    const events = Array.from({ length: count }, (_, index) => eventOf(`m${index}`));
    const history = events.map((event) => sent('track', event, [0, 1]));
    const rows = events.map((event, index) => rowOf(event, index === count - 1 ? lastMs : 1_000));
    return kinds(history, rows, [], more);
  };
  assert.deepEqual(windowOf(30, 1_000), []);
  assert.deepEqual(windowOf(31, 30_999), ['limit exceeded']);
  assert.deepEqual(windowOf(31, 31_000), []);
  // The stamps of a clock that stood still for a day say nothing about half a minute.
  assert.deepEqual(windowOf(31, 1_000, { clockStoodMs: 86_400_000 }), []);
});

test('a status that goes back, is unknown, or never becomes complete is reported', () => {
  const polled = (...polls: Submission['polls']) => kinds([], [], [deletion(ada, [2, 3], { polls })]);
  assert.deepEqual(polled(poll(4, 'pending'), poll(6, ''), poll(8, '503'), poll(10, 'complete')), []);
  assert.deepEqual(polled(poll(4, 'complete'), poll(6, 'pending')), ['status went back']);
  assert.deepEqual(polled(poll(4, '404'), poll(6, 'complete')), ['wrong status']);
  assert.deepEqual(polled(poll(4, 'pending')), ['not completed']);
  // A token ends with its hour, or when Redis's clock jumps over it.
  const ended = [poll(4, '401'), poll(6, 'complete')];
  assert.deepEqual(polled(...ended), ['wrong status']);
  const moved = kinds([], [], [deletion(ada, [2, 3], { polls: ended })], { clockMoved: true });
  assert.deepEqual(moved, []);
});

test('a record about a suppressed user that is stored is reported', () => {
  const record = (marker: string) => sent('track', eventOf(marker), [4, 5]);
  const stored = (marker: string, more: Partial<Evidence> = {}) => {
    const environments = [
      { appId: '1', history: [], rows: [rowOf(eventOf(marker))], keptOut: [record(marker)] },
    ];
    return kinds([], [], [], { environments, ...more });
  };
  const none = [{ appId: '1', history: [], rows: [], keptOut: [record('x-named-1')] }];
  assert.deepEqual(kinds([], [], [], { environments: none }), []);
  assert.deepEqual(stored('x-named-1'), ['stored though suppressed']);
  assert.deepEqual(stored('x-merged-2'), ['stored though suppressed']);
  // Redis may have lost the merges from before the suppression.
  const emptied = [lossOf(1, 2, '7 is ada')];
  assert.deepEqual(stored('x-named-1', { emptied }), ['stored though suppressed']);
  assert.deepEqual(stored('x-merged-2', { emptied }), []);
});

test('an export that lacks a record, has one too many, or never becomes complete is reported', () => {
  const exported = (records: readonly string[] | undefined, more: Partial<Evidence> = {}) => {
    const asked = { invokedMs: 5, before: ['a', 'b'], status: 409 };
    return kinds([], [], [], { exports: [records === undefined ? asked : { ...asked, records }], ...more });
  };
  const emptiedAt = (fromMs: number, ...markers: string[]) => ({
    emptied: [
      { fromMs, toMs: fromMs + 1, markers: new Set(markers), keptDeletions: new Set<string>() },
    ] as const,
  });
  assert.deepEqual(exported(['b', 'a']), []);
  assert.deepEqual(exported(['a']), ['missing in an export']);
  assert.deepEqual(exported(['a', 'b', 'c']), ['too much in an export']);
  assert.deepEqual(exported(['a', 'b', 'b']), ['too much in an export']);
  assert.deepEqual(exported(undefined), ['not exported']);
  assert.deepEqual(exported(undefined, { clockMoved: true }), []);
  // An emptied Redis may lose the request; records may be missing only if no other store had them.
  assert.deepEqual(exported(undefined, emptiedAt(6)), []);
  assert.deepEqual(exported(undefined, emptiedAt(2)), ['not exported']);
  assert.deepEqual(exported(['a'], emptiedAt(2, 'b')), []);
  assert.deepEqual(exported(['a'], emptiedAt(2, 'x')), ['missing in an export']);
  assert.deepEqual(exported(['a', 'c'], emptiedAt(2, 'b')), ['too much in an export']);
});

test('a call that is missing, too early or not genuine is reported', () => {
  const called = (atMs: number, secret: string, changed: object, polls: Submission['polls']) => {
    const body = JSON.stringify({ deletion_request_id: 'a', status: 'complete', ...changed });
    const signature = `t=1,v1=${createHmac('sha256', secret).update(`1.${body}`).digest('hex')}`;
    const callbacks = { calls: [{ atMs, signature, body }], secret: 's' };
    return kinds([], [], [deletion(ada, [2, 3], { polls })], { callbacks });
  };
  const polls = [poll(4, 'pending'), poll(8, 'complete')];
  assert.deepEqual(called(6, 's', {}, polls), []);
  assert.deepEqual(called(3, 's', {}, polls), ['called too early']);
  assert.deepEqual(called(6, 's', { status: 'pending' }, polls), ['called too early']);
  assert.deepEqual(called(6, 'x', {}, polls), ['wrongly signed']);
  assert.deepEqual(called(6, 's', { deletion_request_id: 'b' }, polls), ['not called']);
});

test('a valid key that gets no token is reported, unless the service answers that it cannot check keys now', () => {
  assert.deepEqual(kinds([], [], [], { tokenAnswers: [503, 503] }), []);
  for (const status of [401, 429]) {
    assert.deepEqual(kinds([], [], [], { tokenAnswers: [503, status] }), ['wrongly refused']);
  }
});

test('answers that no request should get are reported', () => {
  const event = eventOf('a');
  const answered = (outcome: Outcome, code = '') => [
    sent('track', event, [0, 1], outcome, { status: 400, code }),
  ];
  assert.deepEqual(kinds(answered('unexpected'), []), ['unexpected answer']);
  assert.deepEqual(kinds(answered('refused', 'missing_field'), []), ['wrongly refused']);
  assert.deepEqual(kinds(answered('refused', 'rate_limited'), []), []);
  assert.deepEqual(kinds(answered('unanswered'), []), ['no answer']);
  assert.deepEqual(kinds(answered('unanswered'), [], [], { apiDisturbed: true }), []);
});

test('a power cut takes what no completed sync covers', () => {
  const trace = [
    '10 write(8</d/a.incr.aof>, "x"..., 100) = 100',
    '10 fdatasync(8</d/a.incr.aof>) = 0 (DELAYED)',
    '10 write(8</d/a.incr.aof>, "x"..., 30) = 30',
    '11 fdatasync(8</d/a.incr.aof> <unfinished ...>',
    '10 write(8</d/a.incr.aof>, "x"..., 7) = 7',
    '11 <... fdatasync resumed>) = 0',
    '10 write(9</d/other.txt>, "x"..., 5) = 5',
    '10 fdatasync(8</d/a.incr.aof> <unfinished ...>',
    '10 +++ killed by SIGKILL +++',
  ].join('\n');
  assert.deepEqual([...readTrace(trace).unsynced], [['/d/a.incr.aof', 7]]);
});

test('the clock of a Redis can jump while it runs, for its scripts and for expiry', async (context) => {
  if (!canSetRedisClock()) return context.skip('there is no C compiler');
  const clock = createRedisClock();
  const server = await startRedis({ env: clock.env });
  const redis = new Redis(server.url);
  context.after(async () => {
    redis.disconnect();
    await server.remove();
    clock.remove();
  });
  const offsetS = async () => {
    const [seconds] = (await redis.eval("return redis.call('TIME')", 0)) as [string];
    return Number(seconds) - Date.now() / 1000;
  };
  assert.ok(Math.abs(await offsetS()) < 60);
  await redis.set('key', 'value', 'EX', 3_600);
  clock.moveBy(90_000);
  assert.ok(Math.abs((await offsetS()) - 90_000) < 60);
  assert.equal(await redis.exists('key'), 0);
  await server.kill9();
  await server.restart();
  assert.ok(Math.abs((await offsetS()) - 90_000) < 60, 'a restart keeps it');
  clock.moveBy(-90_000);
  assert.ok(Math.abs(await offsetS()) < 60);
});

test('a schedule without one of its faults keeps the others as they are', () => {
  const plan = (fault: string) => ({ fault, variant: 0, seed: 1 });
  const schedule = { seed: 5, replay: '', steps: [[[plan('a'), plan('b')], [plan('c')]], [[plan('d')]]] };
  assert.deepEqual(without(schedule, 0).steps, [[[plan('b')], [plan('c')]], [[plan('d')]]]);
  assert.deepEqual(without(schedule, 2).steps, [[[plan('a'), plan('b')]], [[plan('d')]]]);
  assert.deepEqual(without(schedule, 3).steps, [[[plan('a'), plan('b')], [plan('c')]]]);
});

test('the commit script of every mutant still runs, so that it breaks only its promise', async (context) => {
  const server = await startRedis();
  const redis = new Redis(server.url);
  context.after(async () => {
    redis.disconnect();
    await server.remove();
  });
  for (const mutant of mutants) {
    const text = commitScriptOf(mutant);
    if (text === undefined) continue;
    await redis.flushall();
    await loadShard(redis);
    const script = { ...scripts.commit, text, sha: createHash('sha1').update(text).digest('hex') };
    const limit = { digest: '41'.repeat(12), cost: 1, limit: { max: 5, windowMs: 1000, granularityMs: 1 } };
    for (const name of ['a', 'b']) {
      const answer = await commit(redis, [group([eventRecord(name, 'key')], [limit])], { script });
      assert.match(answer, /^[srd]$/, mutant.name);
    }
  }
});

test('every mutant of the service still has the texts that it changes', () => {
  for (const { name, patches } of mutants) for (const patch of patches) patchedText(name, patch);
  assert.throws(() => patchedText('none', ['workers/store.js', 'no such text', '']), /no such text/);
});
