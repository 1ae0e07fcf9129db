// The proxy's faults, on which other tests rely, really happen.

import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { type RedisHandle, startRedis, startTcpProxy, type TcpProxy } from '../harness/services.js';
import { until } from '../harness/wait.js';

type Client = { send(command: string): void; readonly text: string; readonly ended: string | undefined };

let redis: RedisHandle;
let proxy: TcpProxy;
const sockets: Socket[] = [];

before(async () => {
  redis = await startRedis({ appendfsync: 'no' });
  proxy = await startTcpProxy({ port: redis.port });
});

after(async () => {
  for (const socket of sockets) socket.destroy();
  await proxy.close();
  await redis.remove();
});

function client(port: number): Client {
  const socket = connect({ host: '127.0.0.1', port }).setEncoding('utf8');
  sockets.push(socket);
  let text = '';
  let ended: string | undefined;
  socket.on('data', (chunk: string) => {
    text += chunk;
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    ended = error.code;
  });
  socket.on('close', () => {
    ended ??= 'closed';
  });
  return {
    send: (command) => socket.write(`${command}\r\n`),
    get text() {
      return text;
    },
    get ended() {
      return ended;
    },
  };
}

function shows(one: Client, text: string): Promise<true> {
  return until(() => one.text === text, `the client has ${text}`);
}

test('a black hole delivers nothing until it ends, then everything', async () => {
  const one = client(proxy.port);
  one.send('INCR hole');
  await shows(one, ':1\r\n');
  proxy.blackHole();
  one.send('INCR hole');
  const late = client(proxy.port);
  late.send('PING');
  const direct = client(redis.port);
  direct.send('GET hole');
  await shows(direct, '$1\r\n1\r\n');
  assert.equal(late.text, '');
  proxy.pass();
  await shows(one, ':1\r\n:2\r\n');
  await shows(late, '+PONG\r\n');
});

test('dropped replies: the command is executed, its caller gets no answer, and the connection is reset at the end', async () => {
  const one = client(proxy.port);
  const idle = client(proxy.port);
  for (const each of [one, idle]) {
    each.send('PING');
    await shows(each, '+PONG\r\n');
  }
  proxy.dropReplies();
  one.send('SET dropped yes');
  const direct = client(redis.port);
  await until(() => {
    direct.send('GET dropped');
    return direct.text.includes('yes');
  }, 'the command is carried out');
  assert.equal(one.text, '+PONG\r\n');
  proxy.pass();
  await until(() => one.ended, 'the connection that lost a reply ends');
  assert.equal(one.ended, 'ECONNRESET');
  idle.send('PING');
  await shows(idle, '+PONG\r\n+PONG\r\n');
});

test('a cut resets connections old and new until it ends', async () => {
  const old = client(proxy.port);
  old.send('PING');
  await shows(old, '+PONG\r\n');
  proxy.cut();
  const fresh = client(proxy.port);
  for (const each of [old, fresh]) {
    await until(() => each.ended, 'the connection ends');
    assert.equal(each.ended, 'ECONNRESET');
  }
  proxy.pass();
  const next = client(proxy.port);
  next.send('PING');
  await shows(next, '+PONG\r\n');
});

test('a delay holds back what is sent, in order', async () => {
  const one = client(proxy.port);
  one.send('PING');
  await shows(one, '+PONG\r\n');
  proxy.delay(100);
  const sentAt = performance.now();
  one.send('ECHO 1');
  one.send('ECHO 2');
  await shows(one, '+PONG\r\n$1\r\n1\r\n$1\r\n2\r\n');
  assert.ok(performance.now() - sentAt >= 195);
  proxy.pass();
});
