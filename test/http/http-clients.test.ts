// Clients that send little and cost much: slow ones, silent ones, short connections. Beside them a
// well-behaved client is served, memory stays bounded, and every file descriptor is freed.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, beforeEach, test } from 'node:test';
import { bodies } from '../../src/contract/limits.js';
import { startNeighbour } from '../fuzz/neighbour.js';
import { openDescriptors, quantile, residentMib } from '../fuzz/process-figures.js';
import { createEnvironments } from '../harness/accounts.js';
import { openRaw, type RawConnection } from '../harness/raw-http.js';
import { until } from '../harness/wait.js';
import { ownApi } from '../support/sluice.js';

/** The parser's timer: 10 s in steps of 4 s, and time for a busy machine. */
const timerMsMax = 60_000;
/** The timer fires no earlier than this. */
const timerMsMin = 8_000;
const slowClients = 100;

let descriptorsBefore: number;

// Before the hook that ends the API.
after(() => neighbour.stop());
const sluice = await ownApi();
const [appId = ''] = await createEnvironments(sluice, [['--limit', 'track=none']]);
const api = sluice.own;
const pid = api.pid;
const neighbour = startNeighbour({ baseUrl: api.baseUrl, appId, pid: api.pid });
await pause(1_000);
await neighbour.report();
beforeEach(() => {
  descriptorsBefore = openDescriptors(pid);
});

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Runs `work` and then asserts that the client beside it was served as well as when it is alone on this machine, that memory
 * grew by no more than `growthMibMax` meanwhile, and that all descriptors are back.
 */
async function beside(growthMibMax: number, work: () => Promise<void>): Promise<void> {
  await neighbour.report();
  const aloneMs: number[] = [];
  await until(
    async () => aloneMs.push(...(await neighbour.report()).tookMs) >= 30,
    'the client was served 30 times',
  );
  const residentBefore = residentMib(pid);
  let highest = 0;
  const timer = setInterval(() => {
    highest = Math.max(highest, residentMib(pid));
  }, 50);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  const { tookMs, faults } = await neighbour.report();
  assert.deepEqual(faults, []);
  // A pause of the machine may delay some of the few requests. A request that a slow client held up would wait longer, for the parser's
  // timer.
  const [p75, p75Alone] = [quantile(tookMs, 0.75), quantile(aloneMs, 0.75)];
  assert.ok(p75 <= Math.max(250, 4 * p75Alone), `p75 ${p75} ms of ${tookMs.length}, alone ${p75Alone} ms`);
  assert.ok(Math.max(...tookMs) < timerMsMin, `one took ${Math.max(...tookMs)} ms`);
  const growth = highest - residentBefore;
  assert.ok(growth <= growthMibMax, `memory grew by ${growth} MiB`);
  await until(() => openDescriptors(pid) <= descriptorsBefore, {
    deadlineMs: timerMsMax,
    what: `the descriptors are ${descriptorsBefore} again; now ${openDescriptors(pid)}`,
    everyMs: 100,
  });
  assert.equal(api.running && api.pid, pid);
}

const head = `POST /api/track HTTP/1.1\r\nHost: sluice.test\r\nContent-Type: application/json\r\n`;

/** Opens connections that send `first` and then `drip` every second; settles when the server has closed all. */
async function untilDrippersClosed(first: string, drip: string): Promise<void> {
  const connections = await openMany(slowClients);
  const dripping = setInterval(() => {
    for (const connection of connections) if (!connection.closed) void connection.send(drip);
  }, 1_000);
  try {
    for (const connection of connections) void connection.send(first);
    await until(() => connections.every(({ closed }) => closed), {
      deadlineMs: timerMsMax,
      what: 'the server has closed every slow connection',
      everyMs: 200,
    });
    assert.ok(connections.every(({ replies }) => replies.length === 0));
  } finally {
    clearInterval(dripping);
    for (const connection of connections) connection.destroy();
  }
}

function openMany(count: number): Promise<RawConnection[]> {
  return Promise.all(Array.from({ length: count }, () => openRaw(api.baseUrl)));
}

test('the service is not held up by slow heads and slow bodies, and closes their connections', async () => {
  await beside(64, async () => {
    await Promise.all([
      untilDrippersClosed(`${head}X-A: `, 'a'),
      untilDrippersClosed(`${head}Content-Length: ${bodies.singleBytesMax}\r\n\r\n{`, ' '.repeat(500)),
      untilDrippersClosed(`${head}Transfer-Encoding: chunked\r\n\r\n`, '1\r\n \r\n'),
    ]);
  });
});

test('the service is not held up by clients that do not read what they asked for', async () => {
  const { hostname, port } = new URL(api.baseUrl);
  const sockets: Socket[] = [];
  await beside(128, async () => {
    for (let index = 0; index < slowClients; index += 1) {
      const socket = connect({ host: hostname, port: Number(port) });
      socket.on('error', () => undefined);
      // The client does not read, so the kernel's buffers fill, and then the server's.
      socket.pause();
      socket.write('GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n');
      sockets.push(socket);
    }
    await pause(3_000);
    // One more request behind an answer that is not read.
    for (const socket of sockets) socket.write('GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n');
    await pause(1_000);
    for (const socket of sockets) socket.destroy();
  });
});

test('keeps only one answer for a client that asks again and again and reads nothing', async () => {
  const { hostname, port } = new URL(api.baseUrl);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on('error', () => undefined);
  socket.pause();
  await once(socket, 'connect');
  // Each answer has 200 kB. Once the kernel takes no more, one is pending, and the next request ends the connection.
  await beside(96, async () => {
    await until(
      () => {
        if (!socket.destroyed) socket.write('GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n');
        return socket.destroyed;
      },
      { deadlineMs: timerMsMax, what: 'the server has closed the connection', everyMs: 25 },
    );
  });
});

test('reads one request of a packet that holds thousands', async () => {
  for (const line of ['GET /nothing', 'GET /sdk.js', 'OPTIONS /api/collect', 'DELETE /api/track']) {
    const connection = await openRaw(api.baseUrl);
    await connection.send(`${line} HTTP/1.1\r\nHost: a\r\n\r\n`.repeat(5_000));
    await connection.untilClosed();
    assert.deepEqual(connection.replies, [], line);
    connection.destroy();
  }
});

test('serves others while 2,000 connections say nothing', async () => {
  await beside(64, async () => {
    const connections = await openMany(2_000);
    await pause(2_000);
    for (const connection of connections) connection.destroy();
  });
});

test('serves 2,000 short connections, some of which break off', async () => {
  const body = JSON.stringify({ app_id: sluice.appId });
  const request = `${head}Content-Length: ${body.length}\r\n\r\n${body}`;
  await beside(64, async () => {
    let left = 2_000;
    let answered = 0;
    const client = async () => {
      while (left > 0) {
        left -= 1;
        const breaksOff = left % 10 === 0;
        const connection = await openRaw(api.baseUrl);
        await connection.send(breaksOff ? request.slice(0, left % request.length) : request);
        if (!breaksOff) {
          assert.equal((await connection.reply(0)).status, 400);
          answered += 1;
        }
        connection.destroy();
      }
    };
    await Promise.all(Array.from({ length: 50 }, client));
    assert.equal(answered, 1_800);
  });
});
