import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { percentileMs } from '../../bench/latency/histogram.js';
import { sendClosedLoop } from '../../bench/load/closed-loop.js';
import { newLatencies, recordLatency, sendOpenLoop, startOpenLoop } from '../../bench/load/open-loop.js';
import { mixedRequests } from '../../bench/load/records.js';
import { assertAnswered, findWrk, prepareWrk, readCounts, type WrkOptions } from '../../bench/load/wrk.js';
import { readOptions } from '../../bench/options.js';
import { allScenarios, selectScenarios } from '../../bench/scenarios.js';
import { chooseWrk } from '../../bench/throughput/connections.js';
import { measure, type Subject } from '../../bench/throughput/measure.js';
import { readAnswers } from '../../bench/throughput/throughput.js';

type Handle = (body: string, response: ServerResponse, request: IncomingMessage) => void;

const closers: (() => void)[] = [];
after(() => {
  for (const close of closers) close();
});

/** A server on a port of its own that answers each body; settles with its URL. */
async function serve(handle: Handle, onConnection: () => void = () => undefined): Promise<string> {
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text) => {
      body += text;
    });
    request.on('end', () => handle(body, response, request));
  });
  server.on('connection', onConnection);
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function bodiesOf(connections: number, each: number): Buffer[][] {
  return Array.from({ length: connections }, (_, connection) =>
    Array.from({ length: each }, (_body, i) => Buffer.from(`${connection}:${i}`)),
  );
}

for (const threads of [1, 2]) {
  test(`as fast as answered, ${threads} thread(s): every body is sent once, in turn`, async () => {
    const received: string[] = [];
    const url = await serve((body, response, { url: path }) => {
      received.push(`${path} ${body}`);
      response.end('{}');
    });
    const bodies = bodiesOf(4, 25);
    const { seconds, generatorCpu } = await sendClosedLoop({
      url,
      path: '/x',
      bodies,
      requests: 100,
      threads,
    });
    assert.ok(seconds > 0 && generatorCpu > 0);
    const expected = bodies.flat().map((body) => `/x ${body}`);
    assert.deepEqual([...received].sort(), expected.sort());
    const ofFirst = received.filter((text) => text.startsWith('/x 0:'));
    assert.deepEqual(ofFirst, expected.filter((text) => text.startsWith('/x 0:')).sort(byNumber));
  });

  test(`as fast as answered, ${threads} thread(s): statuses are known by connection and request`, async () => {
    const url = await serve((body, response) => {
      const [connection, index] = body.split(':').map(Number) as [number, number];
      response.writeHead(index === connection ? 429 : 200).end('{"err":{}}');
    });
    const { statuses } = await sendClosedLoop({
      url,
      bodies: bodiesOf(4, 5),
      requests: 20,
      threads,
      statuses: [200, 429],
      expectedBody: null,
      keepsStatuses: true,
    });
    assert.deepEqual(
      statuses.map((list) => [...list].map((status) => status === 429)),
      [0, 1, 2, 3].map((connection) => [0, 1, 2, 3, 4].map((index) => index === connection)),
    );
  });
}

function byNumber(a: string, b: string): number {
  return Number(a.split(':')[1]) - Number(b.split(':')[1]);
}

test('as fast as answered: one answer with another status or body fails the run and is reported', async () => {
  let requests = 0;
  const refusing = await serve((_body, response) => {
    requests += 1;
    response.writeHead(requests === 7 ? 503 : 200).end('{}');
  });
  await assert.rejects(
    sendClosedLoop({ url: refusing, bodies: bodiesOf(2, 10), requests: 20 }),
    /20 of 20 requests were answered, 0 not as they should, 1 × 503/,
  );
  const partly = await serve((body, response) => {
    response.end(body === '1:3' ? '{"rejected":1}' : '{}');
  });
  await assert.rejects(
    sendClosedLoop({ url: partly, bodies: bodiesOf(2, 10), requests: 20 }),
    /20 of 20 requests were answered, 1 not as they should, all 200; the first: \{"rejected":1\}/,
  );
});

/** Sends by wrk; settles when it has ended. */
async function sendByWrk(options: Pick<WrkOptions, 'url' | 'bodies' | 'requests'> & Partial<WrkOptions>) {
  const wrk = findWrk();
  assert.ok(wrk !== undefined, 'wrk is installed');
  const { send, stop } = await prepareWrk(wrk, { path: '/x', connections: 4, secondsMax: 60, ...options });
  return send().finally(stop);
}

test('by wrk: every request is sent once and answered, the bodies in turn, repeatedly', async () => {
  const received: string[] = [];
  const sockets = new Set<unknown>();
  const url = await serve((body, response, { method, url: path, headers, socket }) => {
    sockets.add(socket);
    received.push(`${method} ${path} ${headers['content-type']} ${body}`);
    // The answers come in another order than the requests, and the last one long after the others.
    setTimeout(() => response.end('{}'), received.length === 100 ? 500 : received.length % 3);
  });
  const bodies = Array.from({ length: 30 }, (_, i) => Buffer.from(`{"body":${i}}`));
  const { seconds, generatorCpu } = await sendByWrk({ url, bodies, requests: 100 });
  assert.ok(seconds > 0 && seconds < 30, `${seconds} s`);
  assert.ok(generatorCpu >= 0);
  assert.equal(sockets.size, 4);
  const expected = Array.from({ length: 100 }, (_, i) => `POST /x application/json {"body":${i % 30}}`);
  assert.deepEqual([...received].sort(), expected.sort());
});

test('by wrk: sends nothing before the command to start, and can be ended before it', async () => {
  let requests = 0;
  const url = await serve((_body, response) => {
    requests += 1;
    response.end('{}');
  });
  const wrk = findWrk();
  assert.ok(wrk !== undefined);
  const options = {
    url,
    path: '/',
    bodies: [Buffer.from('{}')],
    requests: 4,
    connections: 2,
    secondsMax: 60,
  };
  const ended = await prepareWrk(wrk, options);
  const sent = await prepareWrk(wrk, options);
  assert.equal(requests, 0);
  ended.stop();
  await assert.rejects(ended.send(), /^BenchError: wrk ended before it was done|^Error: wrk ended before/);
  await sent.send();
  assert.equal(requests, 4);
});

test('by wrk: an answer with another status, a missing answer, and a lost connection fail the run', async () => {
  let requests = 0;
  const refusing = await serve((_body, response) => {
    requests += 1;
    response.writeHead(requests === 7 ? 429 : 200).end('{}');
  });
  const bodies = [Buffer.from('{}')];
  await assert.rejects(
    sendByWrk({ url: refusing, bodies, requests: 20 }),
    /20 of 20 requests were answered; wrk's faults: connect 0, read 0, write 0, status 1, timeout 0/,
  );
  requests = 0;
  const dropping = await serve((_body, response) => {
    requests += 1;
    if (requests === 7) response.socket?.destroy();
    else response.end('{}');
  });
  await assert.rejects(sendByWrk({ url: dropping, bodies, requests: 20 }), /19 of 20 requests were answered/);
  requests = 0;
  const silent = await serve((_body, response) => {
    requests += 1;
    if (requests !== 7) response.end('{}');
  });
  await assert.rejects(
    sendByWrk({ url: silent, bodies, requests: 20, secondsMax: 1 }),
    /19 of 20 requests were answered/,
  );
});

test('the CPU of a generator outside the bench does not count as that of others', async () => {
  const subject: Subject = {
    url: '',
    cpu: () => ({ api: 0 }),
    count: () => Promise.resolve(1),
    stored: () => Promise.resolve({ events: 1, ids: 1 }),
    settle: () => Promise.resolve(),
  };
  const othersShare = async (generatorCpuOutside: number) => {
    const load = () => {
      spawnSync(process.execPath, ['-e', 'for (const end = Date.now() + 500; Date.now() < end; );']);
      return Promise.resolve({
        seconds: 1,
        generatorCpu: 0,
        generatorCpuOutside,
        acknowledged: { events: 1 },
      });
    };
    const { run } = await measure({ subject, appId: '', requests: 1, before: {}, load });
    return run.othersShare ?? Number.NaN;
  };
  assert.ok((await othersShare(0)) > 0);
  // More CPU than the machine has.
  assert.equal(await othersShare(1e12), 0);
});

test('where wrk is not installed, one line says so', () => {
  assert.equal(findWrk('wrk-that-is-not-there'), undefined);
  const said: string[] = [];
  const progress = { say: (text: string) => void said.push(text) };
  assert.equal(chooseWrk(progress, undefined), undefined);
  assert.match(said.join('\n'), /^wrk is not installed.*: autocannon sends instead.*$/);
  assert.equal(said.length, 1);
  const wrk = findWrk();
  assert.match(wrk?.version ?? '', /^\d+\.\d+/);
  assert.equal(chooseWrk(progress, wrk), wrk);
  assert.equal(said.length, 1);
});

test("reads wrk's counts, and demands an answer without a fault to every request", () => {
  const counts = readCounts('answers 100 connect 0 read 1 write 2 status 3 timeout 4');
  assert.deepEqual(counts, { answers: 100, connect: 0, read: 1, write: 2, status: 3, timeout: 4 });
  const none = { connect: 0, read: 0, write: 0, status: 0, timeout: 0 };
  assertAnswered(100, { answers: 100, ...none });
  for (const wrong of [99, 101]) {
    assert.throws(() => assertAnswered(100, { answers: wrong, ...none }), /of 100 requests were answered/);
  }
  for (const fault of Object.keys(none)) {
    assert.throws(
      () => assertAnswered(100, { answers: 100, ...none, [fault]: 1 }),
      new RegExp(`100 of 100 requests were answered; wrk's faults: .*${fault} 1`),
    );
  }
  assert.throws(() => readCounts('answers 100 connect 0'), /wrk printed no number for read/);
});

test('at a fixed rate: all requests are sent, no faster than they are due', async () => {
  let requests = 0;
  const url = await serve((_body, response) => {
    requests += 1;
    response.end('{}');
  });
  const sent = await sendOpenLoop({
    url,
    bodies: [Buffer.from('{}')],
    ratePerSecond: 500,
    requests: 100,
    connections: 8,
  });
  assert.equal(requests, 100);
  assert.ok(sent.seconds >= 99 / 500, `${sent.seconds} s`);
  assert.equal(sent.latenciesSinceDue.length, 100);
});

test('at a fixed rate: a pause of the service shows in the latency of requests that were due meanwhile and not sent', async () => {
  const pauseMs = 300;
  let paused = false;
  const url = await serve((_body, response) => {
    if (paused) return void response.end('{}');
    paused = true;
    setTimeout(() => response.end('{}'), pauseMs);
  });
  const latencies = newLatencies();
  // There is one connection, so while its first request waits, all others that are due wait too.
  const load = await startOpenLoop(
    { url, bodies: [Buffer.from('{}')], ratePerSecond: 100, requests: 20, connections: 1 },
    (answered) => recordLatency(latencies, answered),
  );
  await load.ended;
  assert.equal(latencies.acknowledged.totalCount, 20);
  assert.ok(percentileMs(latencies.sinceSent, 50) < 100, 'one answer was slow');
  assert.ok(percentileMs(latencies.acknowledged, 50) > 100, 'many were late');
});

test('at a fixed rate: delays of the generator itself do not count as latency of acknowledgements', () => {
  const latencies = newLatencies();
  recordLatency(latencies, { dueAt: 0, sentAt: 40, waited: false, answeredAt: 41 });
  assert.deepEqual(
    [latencies.acknowledged, latencies.sinceSent, latencies.sinceDue].map((one) => percentileMs(one, 50)),
    [1, 1, 41],
  );
});

test('at a fixed rate: stops on request, after everything under way is answered', async () => {
  let answered = 0;
  const url = await serve((_body, response) => {
    setTimeout(() => {
      answered += 1;
      response.end('{}');
    }, 20);
  });
  let stop = () => undefined as unknown;
  const load = await startOpenLoop(
    {
      url,
      bodies: [Buffer.from('{}')],
      ratePerSecond: 500,
      requests: Number.POSITIVE_INFINITY,
      connections: 16,
    },
    ({ request }) => {
      if (request === 30) stop();
    },
  );
  stop = () => load.stop();
  const { requests } = await load.ended;
  assert.ok(requests > 30);
  assert.equal(answered, requests);
  assert.equal(load.answers, requests);
});

test('at a fixed rate: an answer other than 200 {} fails the run', async () => {
  const answers = [
    [429, '{"err":{}}'],
    [503, '{}'],
  ] as const;
  for (const [status, body] of answers) {
    const url = await serve((_body, response) => response.writeHead(status).end(body));
    const options = { url, bodies: [Buffer.from('{}')], ratePerSecond: 100, requests: 5, connections: 2 };
    await assert.rejects(sendOpenLoop(options), new RegExp(`a request was answered: HTTP/1\\.1 ${status}`));
  }
});

test('at a fixed rate: accepts answers with a length and in chunks', async () => {
  const url = await serve((_body, response) => {
    if (response.req.headers['content-length'] === '1') response.writeHead(200).end('{}');
    else response.end('{}');
  });
  const bodies = [Buffer.from('1'), Buffer.from('22')];
  const { latenciesSinceDue } = await sendOpenLoop({
    url,
    bodies,
    ratePerSecond: 200,
    requests: 20,
    connections: 4,
  });
  assert.equal(latenciesSinceDue.length, 20);
});

test('at a fixed rate: reopens an idle connection that the service closes; one in use that it closes fails the run', async (context) => {
  // The next request is due once the closed connection is open again, however long that takes.
  let nowMs = 0;
  context.mock.method(performance, 'now', () => nowMs);
  const options = { bodies: [Buffer.from('{}')], ratePerSecond: 4, requests: 5, connections: 2 };
  const sockets = new Set<unknown>();
  const closing = await serve(
    (_body, response) => {
      const { socket } = response;
      sockets.add(socket);
      response.end('{}', () => socket?.destroy());
    },
    () => {
      if (sockets.size > 0) nowMs += 1000 / options.ratePerSecond;
    },
  );
  await sendOpenLoop({ ...options, url: closing });
  assert.equal(sockets.size, 5);
  const dropping = await serve((_body, response) => response.socket?.destroy());
  await assert.rejects(sendOpenLoop({ ...options, url: dropping }), /the service closed a connection/);
});

test('the mixture: an event is expected once when any of its requests was acknowledged, and never when all were limited', () => {
  const keys = [
    ['a', 'b', 'a', 'c'],
    ['d', 'd', 'd'],
  ];
  const statuses = [Uint16Array.of(200, 429, 200, 200), Uint16Array.of(429, 200, 200)];
  assert.deepEqual(readAnswers(keys, statuses), { acknowledged: { events: 3 }, limited: 2, repeats: 2 });
});

test('the mixture has its share of repeats and of users who are limited', () => {
  const requests = mixedRequests(1000, { appId: '1', first: 0, keyPrefix: 'k' });
  const different = new Set(requests.map(({ key }) => key)).size;
  const hot = requests.filter(({ body }) => body.includes('"identity":"hot-')).length;
  assert.ok(Math.abs(different - 850) <= 5, `${different} different`);
  assert.ok(hot >= 45 && hot <= 55, `${hot} of hot users`);
});

test('options: a bad one is named, and options that belong together are required together', () => {
  assert.throws(
    () => readOptions(['--duration', '0'], true),
    /--duration must be a whole number above 0, not "0"/,
  );
  assert.throws(() => readOptions(['--rate', '1.5'], true), /--rate/);
  assert.throws(() => readOptions(['--flat-events', '1,x'], true), /--flat-events/);
  assert.throws(() => readOptions(['--url', 'http://a'], true), /belong together/);
  assert.throws(() => readOptions(['--only', 'single'], false), /--only belongs to all/);
  assert.throws(() => readOptions(['--env', 'A'], true), /--env takes NAME=VALUE/);
  const elsewhere = ['--url', 'ftp://a', '--app-id', '1', '--clickhouse-url', 'http://b'];
  assert.throws(() => readOptions(elsewhere, true), /--url must be a URL/);
});

test('only a session with default options counts as standard, wherever its results go', () => {
  assert.equal(readOptions([], true).standard, true);
  assert.equal(readOptions(['--out', 'x'], true).standard, true);
  assert.equal(readOptions(['--repeats', '1'], true).standard, false);
  assert.equal(readOptions(['--only', 'single'], true).standard, false);
});

test('scenarios: accepts names and groups, and refuses others, and with --url those that need processes of their own', () => {
  assert.deepEqual(selectScenarios(['bulk-500', 'single'], false), ['single', 'bulk-500']);
  assert.ok(selectScenarios(['peers'], false).includes('fastify-single'));
  assert.throws(() => selectScenarios(['singel'], false), /there is no scenario singel/);
  assert.throws(
    () => selectScenarios(['backfill', 'segments'], true),
    /needs processes of the bench: segments/,
  );
  assert.deepEqual(allScenarios(true), ['backfill', 'producer']);
  assert.ok(allScenarios(false).includes('connections') && allScenarios(false).includes('engine'));
});
