// The check on which the fault tests rely, with histories and rows made by hand: each broken promise is reported, and a
// history in which all are kept is not.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SentEvent } from '../harness/endpoints.js';
import { findViolations, type StoredEvent } from '../harness/exactly-once.js';
import type { Invocation, Outcome, Settlement } from '../harness/load.js';

type Entry = Invocation & Partial<Settlement>;

function event(marker: string, key?: string): SentEvent {
  return {
    event: 'Order',
    identity: 'ada',
    timestamp: '2026-03-04T05:06:07.089+01:00',
    properties: { marker, amount: 12.5, tags: ['a', 7] },
    ...(key === undefined ? {} : { idempotency_key: key }),
  };
}

let requests = 0;

/** A request from `invokedMs` to `settledMs`; one without an outcome when its process ended first. */
function sent(
  events: readonly SentEvent[],
  outcome?: Outcome,
  [invokedMs, settledMs] = [0, 1],
  refusedIndexes: readonly number[] = [],
): Entry {
  requests += 1;
  const invocation = { request: requests, invokedMs, events };
  if (outcome === undefined) return invocation;
  return { ...invocation, settledMs, outcome, status: 0, code: '', refusedIndexes };
}

let ids = 0;

function row(marker: string, more: Partial<StoredEvent> = {}): StoredEvent {
  ids += 1;
  return {
    event_id: `id ${ids}`,
    event: 'Order',
    user_id: null,
    identity: 'ada',
    session_id: '',
    time_ms: String(Date.parse('2026-03-04T04:06:07.089Z')),
    received_ms: '1',
    properties: { tags: 'a||7', marker, amount: '12.5' },
    ...more,
  };
}

function kinds(history: readonly Entry[], rows: readonly StoredEvent[]): string[] {
  return findViolations(history, rows).map(({ kind }) => kind);
}

test('finds nothing wrong where every promise was kept', () => {
  const history = [
    sent([event('a')], 'acknowledged'),
    sent([event('b')], 'unknown'),
    sent([event('c')], 'unknown'),
    sent([event('d')], 'unanswered'),
    sent([event('e')]),
    sent([event('f')], 'refused'),
    sent([event('g')], 'overloaded'),
    sent([event('h'), event('i'), event('j')], 'acknowledged', [0, 1], [1]),
    sent([event('k', 'key')], 'unknown', [0, 1]),
    sent([event('k', 'key')], 'acknowledged', [2, 3]),
    sent([event('l', 'key')], 'acknowledged', [4, 5]),
  ];
  assert.deepEqual(kinds(history, [row('a'), row('c'), row('d'), row('h'), row('j'), row('k')]), []);
});

test('reports an acknowledged event that is not stored', () => {
  assert.deepEqual(kinds([sent([event('a')], 'acknowledged')], []), ['lost']);
  assert.deepEqual(kinds([sent([event('a'), event('b')], 'acknowledged')], [row('a')]), ['lost']);
  assert.deepEqual(kinds([sent([event('a', 'key')], 'acknowledged')], []), ['lost']);
});

test('reports an event that is stored twice, whatever the outcome of its request', () => {
  for (const outcome of ['acknowledged', 'unknown', 'unanswered', undefined] as const) {
    assert.deepEqual(kinds([sent([event('a')], outcome)], [row('a'), row('a')]), ['doubled']);
  }
});

test('reports a refused event that is stored', () => {
  for (const outcome of ['refused', 'overloaded'] as const) {
    assert.deepEqual(kinds([sent([event('a')], outcome)], [row('a')]), ['not absent']);
  }
  const partly = sent([event('a'), event('b')], 'acknowledged', [0, 1], [1]);
  assert.deepEqual(kinds([partly], [row('a'), row('b')]), ['not absent']);
});

test('reports every field that is not what was sent', () => {
  const history = [sent([event('a')], 'acknowledged')];
  const changes: Partial<StoredEvent>[] = [
    { event: 'order' },
    { user_id: '0' },
    { identity: 'Ada' },
    { session_id: 's' },
    { time_ms: '1' },
    { properties: { marker: 'a', amount: '12.50', tags: 'a||7' } },
    { properties: { marker: 'a', amount: '12.5' } },
    { properties: { marker: 'a', amount: '12.5', tags: 'a||7', more: '' } },
  ];
  for (const change of changes) assert.deepEqual(kinds(history, [row('a', change)]), ['changed']);
});

test('reports rows that nobody sent, and two events with one id', () => {
  assert.deepEqual(kinds([], [row('a')]), ['never sent']);
  assert.deepEqual(kinds([], [row('a', { properties: {} })]), ['never sent']);
  const history = [sent([event('a')], 'acknowledged'), sent([event('b')], 'acknowledged')];
  assert.deepEqual(kinds(history, [row('a', { event_id: 'x' }), row('b', { event_id: 'x' })]), ['doubled']);
});

test('reports two rows of one key, and none where one was acknowledged', () => {
  const history = [
    sent([event('a', 'key')], 'acknowledged', [0, 10]),
    sent([event('b', 'key')], 'acknowledged', [0, 10]),
  ];
  assert.deepEqual(kinds(history, [row('a')]), []);
  assert.deepEqual(kinds(history, [row('b')]), []);
  assert.deepEqual(kinds(history, [row('a'), row('b')]), ['doubled']);
  assert.deepEqual(kinds(history, []), ['lost']);
});

test('reports the row of a later event where an earlier one with its key was acknowledged', () => {
  const first = sent([event('a', 'key')], 'acknowledged', [0, 1]);
  const later = (outcome: Outcome) => sent([event('b', 'key')], outcome, [2, 3]);
  assert.deepEqual(kinds([first, later('acknowledged')], [row('b')]), ['not the first']);
  assert.deepEqual(kinds([first, later('unknown')], [row('b')]), ['not the first']);
  assert.deepEqual(kinds([first, sent([event('b', 'key')])], [row('a')]), []);
  // In one request the order is that of its elements.
  const both = sent([event('a', 'key'), event('b', 'key')], 'acknowledged');
  assert.deepEqual(kinds([both], [row('a')]), []);
  assert.deepEqual(kinds([both], [row('b')]), ['not the first']);
});

test('accepts the row of an earlier event whose outcome was unknown', () => {
  const first = sent([event('a', 'key')], 'unknown', [0, 1]);
  const later = sent([event('b', 'key')], 'acknowledged', [2, 3]);
  assert.deepEqual(kinds([first, later], [row('a')]), []);
  assert.deepEqual(kinds([first, later], [row('b')]), []);
  const overloaded = sent([event('a', 'key')], 'overloaded', [0, 1]);
  assert.deepEqual(kinds([overloaded, later], [row('b')]), []);
  assert.deepEqual(kinds([overloaded, later], [row('a')]), ['not absent', 'not the first']);
});
