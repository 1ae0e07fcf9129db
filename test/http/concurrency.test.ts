// Places with turns by account, on their own: shares, the line, whose turn it is, and who makes way.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createPlaces, type EndPlace, type MakesWay } from '../../src/concurrency.js';
import { until } from '../harness/wait.js';

const limits = {
  atOnceMax: 6,
  ofAccountMax: 3,
  ofPersonMax: 2,
  reserved: 2,
  waitMsMax: 2_000,
  waitingOfAccountMax: 10,
  waitingOfPersonMax: 5,
};
const soon = { ...limits, waitMsMax: 20 };
const of = (account: string, person = 'p') => ({ account, person });
const gone = () => new Promise((settle) => setImmediate(settle));

function take(places: ReturnType<typeof createPlaces>, account: string, person?: string): EndPlace {
  const end = places.tryTake(of(account, person));
  assert.ok(end !== undefined, `${account} finds a place`);
  return end;
}

test('an account and a person have their shares, and the last places are for accounts that hold none', () => {
  const places = createPlaces(limits);
  take(places, 'a', 'x');
  take(places, 'a', 'x');
  assert.equal(places.tryTake(of('a', 'x')), undefined, 'the share of a person');
  const end = take(places, 'a', 'y');
  assert.equal(places.tryTake(of('a', 'z')), undefined, 'the share of an account');
  take(places, 'b');
  assert.equal(places.tryTake(of('b')), undefined, 'two places are left');
  take(places, 'c');
  take(places, 'd');
  assert.equal(places.tryTake(of('e')), undefined, 'all are taken');
  end();
  end();
  take(places, 'e');
  assert.equal(places.tryTake(of('f')), undefined, 'a place is given back once');
});

test('a place goes to the account that holds the fewest, then to the one that had its turn the longest ago', async () => {
  const places = createPlaces({ ...limits, atOnceMax: 2, ofAccountMax: 2, reserved: 0 });
  const ends = [take(places, 'a'), take(places, 'b')];
  const order: string[] = [];
  const ask = (account: string, person = 'p') =>
    void places.take(of(account, person)).then((end) => {
      if (end !== undefined) ends.push(end);
      order.push(`${account}${person}`);
    });
  for (let n = 0; n < 3; n += 1) ask('a', 'x');
  ask('b', 'x');
  ask('a', 'y');
  ask('c', 'x');
  for (let n = 0; n < 6; n += 1) {
    ends.shift()?.();
    await gone();
  }
  // a and b held one each when c came; x had more turns than y.
  assert.deepEqual(order.slice(0, 3), ['cx', 'ax', 'bx']);
  assert.equal(order.indexOf('ay'), 3, order.join());
});

test('the line of an account is bounded, and so is the time in it', async () => {
  const places = createPlaces({ ...soon, waitingOfAccountMax: 3, waitingOfPersonMax: 2 });
  for (const person of ['x', 'y', 'z']) take(places, 'a', person);
  const line = [...'xx'].map((person) => places.take(of('a', person)));
  assert.equal(await Promise.race([places.take(of('a', 'x')), gone()]), undefined);
  const third = places.take(of('a', 'y'));
  let isOver = false;
  void third.then(() => {
    isOver = true;
  });
  assert.equal(await places.take(of('a', 'z')), undefined, 'the line of the account');
  assert.equal(isOver, false);
  assert.deepEqual(await Promise.all([...line, third]), [undefined, undefined, undefined]);
  assert.equal(await places.within(of('a'), async () => 'done'), 'busy');
  assert.equal(await places.within(of('b'), async () => 'done'), 'done');
});

test('slow work makes way for an account that holds nothing, one at a time, and no other work does', async () => {
  const places = createPlaces({ ...limits, atOnceMax: 4, ofAccountMax: 2, reserved: 0 });
  const left: string[] = [];
  const hold = (account: string, isSlow: boolean) => {
    const makesWay: MakesWay = {
      isSlow: () => isSlow,
      leave: () => {
        left.push(account);
        setImmediate(() => end?.());
      },
    };
    const end = places.tryTake(of(account), makesWay);
    return end;
  };
  hold('a', false);
  hold('b', true);
  hold('c', true);
  hold('c', true);
  const own = places.take(of('b'));
  const other = places.take(of('d'));
  await until(() => left.length > 0, 'a place is free');
  assert.ok((await other) !== undefined);
  assert.deepEqual(left, ['c'], 'of the account that holds the most');
  assert.equal(await Promise.race([own, gone()]), undefined);
});
