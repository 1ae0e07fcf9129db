// Room for bodies: who gets it, who waits, and who is sent away. The test sets the clock.

import { App, us_socket_local_port } from 'uWebSockets.js';
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, mock, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { receiving } from '../../src/contract/limits.js';
import { readJsonBody } from '../../src/http/protocol/body.js';
import { createRoom } from '../../src/http/protocol/body-room.js';
import { Exchange } from '../../src/http/protocol/exchange.js';
import { openRaw, type RawConnection } from '../harness/raw-http.js';
import { until } from '../harness/wait.js';

const limits = { bytesMax: 100, bytesPerAddressMax: 60, waitMsMax: 5_000 };

describe('room for bodies', () => {
  test('is taken and given back by the byte', () => {
    const room = createRoom(limits);
    assert.ok(room.take('a', 60));
    assert.ok(!room.take('a', 1), 'its address has its share');
    assert.ok(room.take('b', 40));
    assert.ok(!room.take('c', 1), 'there is no more');
    room.give('a', 1);
    assert.ok(room.take('c', 1));
    assert.ok(!room.take('c', 1));
  });

  test('is one share for all addresses of a network of IPv6', () => {
    const room = createRoom(limits);
    assert.ok(room.take('2001:db8::1', 60));
    assert.ok(!room.take('2001:db8::2', 1), 'its network has its share');
    assert.ok(room.take('2001:db8:0:1::2', 40));
    room.give('2001:db8::1', 60);
    assert.ok(room.take('2001:db8::2', 60));
  });

  test('goes to waiting bodies in the order in which they asked, but passes over addresses that have their share', () => {
    const room = createRoom(limits);
    const settled: string[] = [];
    const ask = (address: string, bytes: number) =>
      room.ask(address, bytes, (isTaken) => settled.push(`${address} ${bytes} ${isTaken}`));
    ask('a', 60);
    ask('b', 40);
    ask('a', 10);
    ask('b', 20);
    ask('c', 30);
    assert.deepEqual(settled, ['a 60 true', 'b 40 true']);
    room.give('b', 40);
    assert.deepEqual(settled.slice(2), ['b 20 true']);
    room.give('a', 60);
    assert.deepEqual(settled.slice(3), ['a 10 true', 'c 30 true']);
  });

  test('is waited for only for a limited time, and not by callers who have left', (context) => {
    mock.timers.enable({ apis: ['setTimeout'] });
    context.after(() => mock.timers.reset());
    const room = createRoom(limits);
    const settled: string[] = [];
    room.take('a', 60);
    room.ask('a', 1, (isTaken) => settled.push(`first ${isTaken}`));
    const leave = room.ask('a', 2, (isTaken) => settled.push(`second ${isTaken}`));
    mock.timers.tick(limits.waitMsMax - 1);
    assert.deepEqual(settled, []);
    leave();
    mock.timers.tick(1);
    assert.deepEqual(settled, ['first false']);
    room.give('a', 60);
    assert.deepEqual(settled, ['first false']);
    assert.ok(room.take('a', 60), 'nothing is held for bodies that left');
  });
});

/** Reads every body with `take`. `heads`: how many requests have begun. */
async function listen(take: (exchange: Exchange) => void, onAnswer: (status: number, ms: number) => void) {
  const app = App();
  const server = { url: '', heads: 0, close: () => app.close() };
  app.post('/', (res, req) => {
    const fail = (error: unknown) => assert.fail(String(error));
    const exchange = new Exchange(res, req, [], fail, () => '127.0.0.1', onAnswer);
    readJsonBody(exchange, 16 * 1024 * 1024, take);
    server.heads += 1;
  });
  const port = await new Promise<number>((settle) => {
    app.listen('127.0.0.1', 0, (socket) => settle(us_socket_local_port(socket)));
  });
  server.url = `http://127.0.0.1:${port}`;
  return server;
}

const { smallBytesMax, small, large, inflated } = receiving;
const head = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';

test('a body is answered even if its address has no room left for the last piece', async (context) => {
  const server = await listen(
    (exchange) => exchange.ok(),
    () => undefined,
  );
  const begun: RawConnection[] = [];
  const begin = async (bytes: number) => {
    const connection = await openRaw(server.url);
    begun.push(connection);
    await connection.send(`${head}Content-Length: ${smallBytesMax}\r\n\r\n${' '.repeat(bytes)}`);
    return connection;
  };
  context.after(() => {
    for (const connection of begun) connection.destroy();
    server.close();
  });
  const [last] = [await begin(smallBytesMax / 2), await begin(smallBytesMax / 2)];
  while (begun.length <= small.bytesPerAddressMax / smallBytesMax) await begin(smallBytesMax - 1);
  await until(() => server.heads === begun.length, 'all have begun');
  await last.send(' '.repeat(smallBytesMax / 2));
  assert.equal((await last.reply(0)).status, 503);
});

test('compressed bodies that wait to be inflated take room, though each came in one piece', async (context) => {
  const body = gzipSync(Buffer.concat([randomBytes(40_000), Buffer.alloc(7_000_000)]), { level: 9 });
  assert.ok(body.length < smallBytesMax - 2_000 && body.length > smallBytesMax / 2);
  let sentAway = 0;
  const server = await listen(
    () => undefined,
    (status, ms) => {
      if (status === 503 && ms < inflated.waitMsMax) sentAway += 1;
    },
  );
  const request = Buffer.concat([
    Buffer.from(`${head}Content-Encoding: gzip\r\nContent-Length: ${body.length}\r\n\r\n`),
    body,
  ]);
  const count = Math.floor(small.bytesPerAddressMax / body.length) + 20;
  const begun = await Promise.all(Array.from({ length: count }, () => openRaw(server.url)));
  context.after(() => {
    for (const connection of begun) connection.destroy();
    server.close();
  });
  await Promise.all(begun.map((connection) => connection.send(request)));
  await until(() => sentAway >= 20, 'those beyond the room were sent away');
});

test('large bodies give their room back, though the head came in a packet of its own', async (context) => {
  const bytes = 1_000_000;
  const server = await listen(
    (exchange) => exchange.ok(),
    () => undefined,
  );
  const connection = await openRaw(server.url);
  context.after(() => {
    connection.destroy();
    server.close();
  });
  const count = Math.ceil(large.bytesPerAddressMax / bytes) + 2;
  for (let i = 0; i < count; i++) {
    await connection.send(`${head}Content-Length: ${bytes}\r\n\r\n`);
    await until(() => server.heads === i + 1, 'the request has begun');
    await connection.send(' '.repeat(bytes));
    assert.equal((await connection.reply(i)).status, 200, `body ${i}`);
  }
  const all = large.bytesPerAddressMax / 4;
  await connection.send(`${head}Content-Length: ${all}\r\n\r\n${' '.repeat(all)}`);
  assert.equal((await connection.reply(count)).status, 200, 'a body of a quarter of the room');
});

test('large bodies take room, though each came in one piece', async (context) => {
  const bytes = 400_000;
  const request = `${head}Content-Length: ${bytes}\r\n\r\n${' '.repeat(bytes)}`;
  let [held, sentAway, isHolding] = [0, 0, false];
  const server = await listen(
    (exchange) => {
      if (isHolding) held += 1;
      else exchange.ok();
    },
    (status) => {
      if (status === 503) sentAway += 1;
    },
  );
  const begun = await Promise.all(Array.from({ length: 300 }, () => openRaw(server.url)));
  context.after(() => {
    for (const connection of begun) connection.destroy();
    server.close();
  });
  // Only a connection that has carried much accepts so much at once.
  for (let round = 0; round < 4; round++) {
    for (const connection of begun) {
      await connection.send(request);
      await connection.reply(round);
    }
  }
  isHolding = true;
  await Promise.all(begun.map((connection) => connection.send(request)));
  await until(() => held + sentAway === begun.length, 'all have an end');
  assert.ok(
    held * bytes <= large.bytesPerAddressMax + small.bytesPerAddressMax,
    `${held} bodies are held at once`,
  );
});
