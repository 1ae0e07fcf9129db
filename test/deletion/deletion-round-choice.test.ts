// Which pending requests a round takes: turns by account, within the limit of targets, in the order of submission.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Candidate, fillRound, requestIdsInTurns } from '../../src/privacy/deletion/round-choice.js';
import fc from '../support/fast-check.js';

type Numbered = Candidate & { readonly id: number; readonly ready: boolean };

const isReady = ({ ready }: Numbered) => ready;

function request(id: number, account: string, targets: number, ready = true): Numbered {
  return { id, account_id: account, targets, weight: 0, ready };
}

/** Requests, the oldest first, in turns by account. */
function inTurns(requests: readonly Numbered[]): Numbered[][] {
  const members = requests.map(({ id, account_id }) => ({ accountId: account_id, requestId: String(id) }));
  const byId = new Map(requests.map((each) => [String(each.id), each]));
  return requestIdsInTurns(members, requests.length).map((ids) => ids.map((id) => byId.get(id) as Numbered));
}

function roundOf(requests: readonly Numbered[], targetsMax: number): number[] {
  return fillRound(inTurns(requests), isReady, targetsMax).map(({ id }) => id);
}

test('a round takes the oldest request of every account before the second of any', () => {
  const requests = [request(1, 'a', 10), request(2, 'a', 10), request(3, 'a', 10), request(4, 'b', 10)];
  assert.deepEqual(roundOf(requests, 20), [1, 4]);
  assert.deepEqual(roundOf(requests, 30), [1, 4, 2]);
});

test('a small request does not wait for the large ones of other accounts, however old they are', () => {
  const large = ['a', 'b', 'c', 'd', 'e', 'f'].map((account, id) => request(id, account, 10));
  assert.deepEqual(roundOf([...large, request(9, 'g', 1)], 30), [0, 9, 1]);
});

test('the oldest request that is ready is in the round, even if it alone is too large', () => {
  assert.deepEqual(roundOf([request(1, 'a', 99), request(2, 'b', 1)], 10), [1]);
  assert.deepEqual(roundOf([request(1, 'a', 99, false), request(2, 'b', 98), request(3, 'c', 1)], 10), [2]);
});

test('if the next request of an account is not ready, its later ones wait too, and other accounts go on', () => {
  const requests = [request(1, 'a', 1, false), request(2, 'a', 1), request(3, 'b', 1)];
  assert.deepEqual(roundOf(requests, 10), [3]);
});

test('looks at no more requests than it may, and at the oldest of each account first', () => {
  const members = ['a', 'a', 'a', 'b', 'c'].map((accountId, id) => ({ accountId, requestId: String(id) }));
  assert.deepEqual(requestIdsInTurns(members, 4), [['0', '3', '4'], ['1']]);
  assert.deepEqual(requestIdsInTurns(members, 2), [['0', '3']]);
  assert.deepEqual(requestIdsInTurns([], 2), []);
});

test('a round keeps its limit and the order of each account, and always takes something', () => {
  const anyRequest = fc.record({
    account_id: fc.constantFrom('a', 'b', 'c', 'd'),
    targets: fc.integer({ min: 1, max: 12 }),
    ready: fc.boolean(),
  });
  fc.assert(
    fc.property(
      fc.array(anyRequest, { maxLength: 30 }),
      fc.integer({ min: 12, max: 40 }),
      (some, targetsMax) => {
        const requests = some.map((each, id) => ({ ...each, id, weight: 0 }));
        const round = fillRound(inTurns(requests), isReady, targetsMax);
        assert.ok(round.reduce((sum, { targets }) => sum + targets, 0) <= targetsMax);
        for (const account of ['a', 'b', 'c', 'd']) {
          const submitted = requests.filter(({ account_id }) => account_id === account);
          const taken = round.filter(({ account_id }) => account_id === account);
          assert.deepEqual(taken, submitted.slice(0, taken.length), 'a request overtook one of its account');
          assert.ok(taken.every(isReady));
        }
        const heads = inTurns(requests)[0]?.filter(isReady) ?? [];
        assert.equal(round.length > 0, heads.length > 0);
        if (heads[0] !== undefined) assert.ok(round.includes(heads[0]), 'the oldest is left out');
      },
    ),
  );
});
