// How many connections a port accepts, in all and from one address.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { WebSocket } from 'ws';
import { createCallerAddress } from '../../src/http/protocol/caller-address.js';
import { createConnectionGate, limitConnections } from '../../src/http/protocol/connections.js';
import { listen, type Server } from '../../src/http/protocol/server.js';
import { createLog } from '../../src/log.js';
import { freePort } from '../harness/free-port.js';
import { until } from '../harness/wait.js';

const max = 40;
const limit = limitConnections(max);
let server: Server;
let port: number;

before(async () => {
  port = await freePort();
  const routes = [{ method: 'get', path: '/', handle: (exchange: { ok(): void }) => exchange.ok() }] as const;
  server = await listen(
    '127.0.0.1',
    port,
    'PORT',
    false,
    routes,
    createLog('test', 'silent'),
    createCallerAddress([]),
    (app) => {
      limit.attach(app);
      app.ws('/live', { close: limit.webSocketEnded });
    },
  );
});
after(() => server?.close());

type Connection = { readonly answered: boolean; readonly closed: boolean; ask(): void; destroy(): void };

function open(address: string): Connection {
  const seen = { answered: false, closed: false };
  const socket = connect({ port, host: '127.0.0.1', localAddress: address });
  socket.on('data', () => {
    seen.answered = true;
  });
  socket.on('error', () => {
    seen.closed = true;
  });
  socket.on('close', () => {
    seen.closed = true;
  });
  return {
    get answered() {
      return seen.answered;
    },
    get closed() {
      return seen.closed;
    },
    ask: () => void socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'),
    destroy: () => void socket.destroy(),
  };
}

test('an address that opens all it can leaves room for others, and a connection that ends makes room', async () => {
  const own = Array.from({ length: 4 * max }, () => open('127.0.0.2'));
  await until(
    () => own.filter(({ closed }) => closed).length === 3.5 * max,
    'the connections above half of the room are closed',
  );
  const other = open('127.0.0.3');
  other.ask();
  await until(() => other.answered, 'another address is answered');
  const others = Array.from({ length: 20 }, (_, index) => open(`127.0.1.${index + 1}`));
  await until(() => others.filter(({ closed }) => closed).length === 1, 'one finds no room');
  for (const connection of [...own, ...others, other]) connection.destroy();
  await until(async () => {
    const next = open('127.0.0.4');
    next.ask();
    await until(() => next.answered || next.closed, 'the connection is answered or closed');
    next.destroy();
    return next.answered;
  }, 'there is room again');
});

test('WebSockets that have ended leave their room to others', async () => {
  for (let round = 0; round < 4; round++) {
    const sockets = Array.from(
      { length: max / 4 },
      (_, index) => new WebSocket(`ws://127.0.0.1:${port}/live`, { localAddress: `127.0.2.${index + 1}` }),
    );
    const opened = sockets.map(async (socket) => {
      await once(socket, 'open');
      socket.terminate();
    });
    await Promise.all(opened);
  }
  const next = open('127.0.0.5');
  next.ask();
  await until(() => next.answered, 'there is room');
  next.destroy();
});

describe('a gate', () => {
  test('opens up to its number; once it is half full, an address gets at most a quarter within a window', () => {
    let nowMs = 0;
    const gate = createConnectionGate(100, () => nowMs);
    const opens = (address: string, count: number) => {
      let taken = 0;
      for (let i = 0; i < count; i++) {
        if (gate.open(address)) taken += 1;
        else gate.close();
      }
      return taken;
    };
    assert.equal(opens('a', 100), 50, 'up to half there is no share');
    assert.equal(opens('b', 100), 25);
    assert.equal(opens('b', 1), 0);
    nowMs += 15_000;
    assert.equal(opens('a', 100), 25, 'a new window');
    assert.equal(opens('c', 1), 0, 'there is no room left');
    gate.close();
    assert.equal(opens('c', 2), 1);
  });

  test('limits a trusted proxy by the number only, not by a share', () => {
    const gate = createConnectionGate(100, () => 0);
    for (let i = 0; i < 100; i++) assert.equal(gate.open(undefined), true);
    assert.equal(gate.open(undefined), false);
  });
});
