// Long work of requests waits for its turn, and is forgotten when the client leaves.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Exchange } from '../../src/http/protocol/exchange.js';
import { withResult } from '../../src/http/protocol/slices.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

function request(address: string) {
  const releases: (() => void)[] = [];
  const exchange = { address, ended: false, onGone: (release: () => void) => releases.push(release) };
  const leave = () => {
    exchange.ended = true;
    for (const release of releases) release();
  };
  return { exchange: exchange as unknown as Exchange, leave };
}

test('what a client has sent is forgotten when it leaves, though the work of others goes on', async () => {
  let isOver = false;
  const done: string[] = [];
  withResult(
    request('10.0.0.1').exchange,
    true,
    (function* () {
      while (!isOver) yield;
    })(),
    () => done.push('first'),
  );
  const bodies: WeakRef<Buffer>[] = [];
  const leaves = ['10.0.0.2', '10.0.0.2', '10.0.0.3'].map((address) => {
    const { exchange, leave } = request(address);
    const body = Buffer.alloc(1000);
    bodies.push(new WeakRef(body));
    const steps = (function* () {
      yield;
      return body.length;
    })();
    withResult(exchange, true, steps, (bytes) => done.push(`${address} ${bytes}`));
    return leave;
  });
  leaves[0]?.();
  leaves.length = 0;
  // A weak reference that was made or read in this turn keeps its object.
  await turn();
  collectGarbage();
  const forgotten = bodies.map((body) => body.deref() === undefined);
  isOver = true;
  while (done.length < 3) await turn();
  assert.deepEqual(done, ['first', '10.0.0.2 1000', '10.0.0.3 1000']);
  assert.deepEqual(forgotten, [true, false, false]);
});
