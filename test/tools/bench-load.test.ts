// The bench: the generator of load sends, counts and times as it says.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { bodySource } from '../../bench/load/bodies.js';
import { percentileMs } from '../../bench/load/histogram.js';
import { latenciesOf, mergeSeconds, type Second, SecondCounter } from '../../bench/load/second.js';
import { type SenderOptions, sendLoad } from '../../bench/load/sender.js';
import { allAnswered, type Load, prepareLoad } from '../../bench/load/threads.js';
import { assertAnswered, prepareWrk, type WrkOptions } from '../../bench/load/wrk.js';
import { readOptions } from '../../bench/options.js';
import { createProgress } from '../../bench/progress.js';
import { selectScenarios } from '../../bench/scenarios.js';
import { measure, type Subject } from '../../bench/throughput/measure.js';
import { loadOf } from '../../bench/throughput/throughput.js';
import { wayNamed } from '../../bench/throughput/ways.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { bodyServer, listen } from '../harness/listen.js';
import { until } from '../harness/wait.js';

type Handle = (body: string, response: ServerResponse, request: IncomingMessage) => void;

const closers: (() => void)[] = [];
after(() => {
  for (const close of closers) close();
});

/** A server on a port of its own that answers each body; settles with its URL. */
async function serve(
  handle: Handle = (_body, response) => response.end('{}'),
  onConnection: () => void = () => undefined,
): Promise<string> {
  const server = bodyServer((request, response, body) => handle(body.toString(), response, request));
  server.on('connection', onConnection);
  const { url, stop } = await listen(server);
  closers.push(stop);
  return url;
}

async function runLoad(load: Load) {
  return (await prepareLoad(load)).send();
}

/** Sends numbers in this thread; settles with what was counted. */
async function send(url: string, options: Partial<SenderOptions> = {}) {
  const seconds: Second[] = [];
  let number = 0;
  await sendLoad(
    {
      url,
      path: '/x',
      headers: { 'content-type': 'application/json' },
      nextBody: () => Buffer.from(String(number++)),
      connections: 4,
      rate: undefined,
      seconds: 0.3,
      answer: '{}',
      ...options,
    },
    (second) => seconds.push(second),
  );
  return mergeSeconds(seconds);
}

for (const isOwn of [false, true]) {
  const by = isOwn ? ', by autocannon' : '';
  test(`as fast as answered${by}: every body is sent once, in turn, and no more at once than there are connections`, async () => {
    const received: string[] = [];
    let underWay = 0;
    let most = 0;
    const url = await serve((body, response, { method, url: path }) => {
      received.push(`${method} ${path} ${body}`);
      underWay += 1;
      most = Math.max(most, underWay);
      setImmediate(() => {
        underWay -= 1;
        response.end('{}');
      });
    });
    const requests = allAnswered(await send(url, { isOwn }));
    assert.deepEqual([...received].sort(), Array.from({ length: requests }, (_, i) => `POST /x ${i}`).sort());
    assert.ok(most <= 4, `${most} at once`);
  });

  test(`a single answer${by} with another status or body fails the run, which reports it`, async () => {
    const stop = new AbortController();
    const url = await serve((body, response) => {
      if (body === '20') stop.abort();
      response.writeHead(body === '3' ? 503 : 200).end(body === '5' ? '{"rejected":1}' : '{}');
    });
    const found = await send(url, { isOwn, seconds: Number.POSITIVE_INFINITY, stop: stop.signal });
    assert.throws(
      () => allAnswered(found),
      /the others: 1 × 503, 1 × partly-refused|1 × partly-refused, 1 × 503/,
    );
    assert.throws(() => allAnswered([]), /0 requests were answered/);
  });
}

test('by autocannon: so many requests as wanted, also fewer than connections, and one whose connection is lost fails the load', async () => {
  let requests = 0;
  const url = await serve((_body, response) => {
    requests += 1;
    if (requests === 60) response.socket?.destroy();
    else response.end('{}');
  });
  for (const wanted of [50, 3])
    assert.equal(
      allAnswered(await send(url, { isOwn: true, seconds: Number.POSITIVE_INFINITY, requests: wanted })),
      wanted,
    );
  assert.equal(requests, 53);
  const found = await send(url, { isOwn: true });
  assert.throws(() => allAnswered(found), /the others: 1 × connection/);
});

for (const threads of [1, 2]) {
  test(`${threads} thread(s): wait for the start, send different keys, and end on request`, async () => {
    const keys: string[] = [];
    const url = await serve((body, response) => {
      keys.push((JSON.parse(body) as { idempotency_key: string }).idempotency_key);
      response.end('{}');
    });
    const options = { way: 'single-keys', appIds: ['1', '2'], connections: 4, seconds: 3_600, isOwn: true };
    const load = await prepareLoad({ url, threads, ...options });
    assert.equal(keys.length, 0);
    const sending = load.send();
    await until(() => load.answers() > 0, 'requests are answered');
    load.stop();
    const { seconds, generatorCpu, generatorShare } = await sending;
    assert.equal(allAnswered(seconds), keys.length);
    // Each key is sent to both environments.
    assert.ok(new Set(keys).size >= keys.length / 2 - threads, `${new Set(keys).size} of ${keys.length}`);
    assert.ok(generatorCpu > 0 && generatorShare > 0);
  });
}

test('two threads at a fixed rate send all that is due together, and say what each sent', async () => {
  let requests = 0;
  const url = await serve((_body, response) => {
    requests += 1;
    response.end('{}');
  });
  const load = { url, way: 'single', appIds: ['1'], connections: 100, seconds: 0.5, threads: 2, rate: 200 };
  const startedAt = performance.now();
  const { seconds, sent } = await runLoad({ ...load, sendsAll: true });
  assert.deepEqual([requests, allAnswered(seconds)], [100, 100]);
  assert.deepEqual(
    sent.map((part) => part.requests),
    [50, 50],
  );
  assert.ok(performance.now() - startedAt >= 490);
});

test('what the bench itself does meanwhile does not delay its load', async () => {
  const port = await freePort();
  const program = fileURLToPath(new URL('../../bench/peers/uws.js', import.meta.url));
  const server = spawn(process.execPath, [program], { env: { ...plainEnvironment(), PORT: String(port) } });
  closers.push(() => server.kill('SIGKILL'));
  const url = `http://127.0.0.1:${port}`;
  await until(() => fetch(`${url}/count`).then(Boolean, () => false), 'it listens');
  const busyMs = 600;
  const longestWhileBusy = async () => {
    const load = { url, way: 'single', appIds: ['1'], connections: 50, rate: 100, threads: 1, seconds: 1 };
    const sending = runLoad({ ...load, sendsAll: true });
    await until(async () => Number(await (await fetch(`${url}/count`)).text()) > 0, {
      what: 'the load has begun',
      everyMs: 5,
    });
    for (const endsAt = performance.now() + busyMs; performance.now() < endsAt; );
    return percentileMs(latenciesOf((await sending).seconds), 100);
  };
  // A machine that pauses delays a load too, but not three times.
  let longest = await longestWhileBusy();
  for (let tries = 1; tries < 3 && longest > busyMs / 2; tries += 1) longest = await longestWhileBusy();
  assert.ok(longest < busyMs / 2, `${longest} ms`);
});

test('a fast error is no fast answer, and a request that waited in vain counts with its wait', () => {
  const given: Second[] = [];
  const counter = new SecondCounter((second) => given.push(second));
  for (let i = 0; i < 98; i += 1) counter.count('503', 0.1);
  counter.count('200', 40);
  counter.count('unsent', 900);
  counter.flush();
  const latencies = latenciesOf(mergeSeconds(given));
  assert.equal(latencies.totalCount, 2);
  assert.ok(percentileMs(latencies, 50) >= 40 && percentileMs(latencies, 100) >= 900);
});

test('stop ends a load that was never sent', async () => {
  const url = await serve();
  const load = { url, way: 'single', appIds: ['1'], connections: 1, seconds: 1, threads: 1 };
  const prepared = await prepareLoad(load);
  prepared.stop();
  assert.ok(allAnswered((await runLoad({ ...load, seconds: 0.1 })).seconds) > 0);
});

test('bodies: those with keys never repeat, others have many users, and a load may be made ahead', () => {
  const source = (name: string, ahead?: number) =>
    bodySource({ way: wayNamed(name), appIds: ['1'], keyPrefix: 'k', ...(ahead && { ahead }) });
  const take = (next: () => Buffer, count: number) => Array.from({ length: count }, () => next().toString());
  assert.equal(new Set(take(source('single-keys', 5_000), 12_000)).size, 12_000);
  assert.equal(new Set(take(source('bulk-10'), 300)).size, 300);
  const users = take(source('single'), 130_000).map(
    (body) => (JSON.parse(body) as { identity: string }).identity,
  );
  assert.equal(new Set(users).size, 128_000);
});

async function sendByWrk(options: Pick<WrkOptions, 'url' | 'bodies' | 'requests'> & Partial<WrkOptions>) {
  const { send, stop } = await prepareWrk({ path: '/x', connections: 4, secondsMax: 60, ...options });
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
  const options = {
    url,
    path: '/',
    bodies: [Buffer.from('{}')],
    requests: 4,
    connections: 2,
    secondsMax: 60,
  };
  const ended = await prepareWrk(options);
  const sent = await prepareWrk(options);
  assert.equal(requests, 0);
  ended.stop();
  await assert.rejects(ended.send(), /^BenchError: wrk ended before it was done|^Error: wrk ended before/);
  await sent.send();
  assert.equal(requests, 4);
});

test('by wrk: an answer with another status and a lost connection fail the run', async () => {
  let requests = 0;
  const refusing = await serve((_body, response) => {
    requests += 1;
    response.writeHead(requests === 7 ? 429 : 200).end('{}');
  });
  const bodies = [Buffer.from('{}')];
  await assert.rejects(
    sendByWrk({ url: refusing, bodies, requests: 20 }),
    /of 20 requests, wrk counts: answers 20 connect 0 read 0 write 0 status 1 timeout 0/,
  );
  requests = 0;
  const dropping = await serve((_body, response) => {
    requests += 1;
    if (requests === 7) response.socket?.destroy();
    else response.end('{}');
  });
  await assert.rejects(sendByWrk({ url: dropping, bodies, requests: 20 }), /answers 19 /);
});

test('the CPU of a generator outside the bench does not count as that of others', async () => {
  const subject: Subject = {
    url: '',
    cpu: () => ({ api: 0 }),
    count: () => Promise.resolve(1),
    stored: () => Promise.resolve({ events: 1, ids: 1 }),
    settle: () => Promise.resolve(),
  };
  const othersShare = async (generatorCpu: number) => {
    const load = () => {
      spawnSync(process.execPath, ['-e', 'for (const end = Date.now() + 500; Date.now() < end; );']);
      return Promise.resolve({
        requests: 1,
        seconds: 1,
        generatorCpu,
        generatorShare: 0,
        generator: 'wrk' as const,
        acknowledged: { events: 1 },
      });
    };
    const { run } = await measure({ subject, appId: '', before: {}, load });
    return run.othersShare;
  };
  assert.ok((await othersShare(0)) > 0);
  // The generator claims more CPU than the machine has.
  assert.equal(await othersShare(1e12), 0);
});

test('by wrk: every request must be answered without a fault', () => {
  const counts = (answers: number, fault = '') =>
    ['connect', 'read', 'write', 'status', 'timeout'].reduce(
      (words, name) => `${words} ${name} ${name === fault ? 1 : 0}`,
      `answers ${answers}`,
    );
  assertAnswered(100, counts(100));
  for (const wrong of [counts(99), counts(101), counts(100, 'read'), counts(100, 'status'), 'answers 100'])
    assert.throws(() => assertAnswered(100, wrong), new RegExp(`of 100 requests, wrk counts: ${wrong}`));
});

test('at a fixed rate: all requests are sent, no faster than they are due', async () => {
  let requests = 0;
  const url = await serve((_body, response) => {
    requests += 1;
    response.end('{}');
  });
  const startedAt = performance.now();
  const answered = allAnswered(await send(url, { rate: 200, seconds: 0.5, connections: 100 }));
  assert.deepEqual([requests, answered], [100, 100]);
  assert.ok(performance.now() - startedAt >= 495);
});

test('at a fixed rate: a pause of the service counts in the latency of requests that were due but could not be sent', async () => {
  const pauseMs = 300;
  let paused = false;
  const url = await serve((_body, response) => {
    if (paused) return void response.end('{}');
    paused = true;
    setTimeout(() => response.end('{}'), pauseMs);
  });
  // There is one connection, so while its first request waits, all others that are due wait too.
  const found = await send(url, { rate: 100, seconds: 0.3, connections: 1 });
  const latencies = latenciesOf(found);
  assert.equal(latencies.totalCount, 30);
  assert.ok(percentileMs(latencies, 50) > 100, 'many were late');
});

test('at a fixed rate: a session sends every due request, however late; an outside load counts unsent ones', async () => {
  const url = await serve((_body, response) => setTimeout(() => response.end('{}'), 50));
  const options = { rate: 100, seconds: 0.2, connections: 1 };
  assert.equal(allAnswered(await send(url, { ...options, sendsAll: true })), 20);
  const found = await send(url, options);
  assert.equal(latenciesOf(found).totalCount, 20);
  assert.throws(() => allAnswered(found), /× unsent/);
});

test('at a fixed rate: stops on request, after everything under way is answered', async () => {
  let answered = 0;
  const stop = new AbortController();
  const url = await serve((_body, response) => {
    setTimeout(() => {
      answered += 1;
      if (answered === 30) stop.abort();
      response.end('{}');
    }, 20);
  });
  const options = { rate: 500, seconds: Number.POSITIVE_INFINITY, connections: 16, stop: stop.signal };
  const requests = allAnswered(await send(url, options));
  assert.ok(requests >= 30);
  assert.equal(answered, requests);
});

test('answers may have a length or come in chunks, and a connection that the service closes is opened again', async () => {
  let connections = 0;
  const url = await serve(
    (body, response) => {
      response.writeHead(200, Number(body) % 5 === 0 ? { connection: 'close' } : {});
      if (Number(body) % 2 === 0) response.write('{');
      response.end(Number(body) % 2 === 0 ? '}' : '{}');
    },
    () => {
      connections += 1;
    },
  );
  assert.equal(allAnswered(await send(url, { rate: 200, seconds: 0.5, connections: 100 })), 100);
  assert.ok(connections > 10, `${connections} connections`);
});

test('options: a bad one is named, and only a session with default options counts as standard', () => {
  for (const [args, words] of [
    [['--duration', '0'], /--duration must be a whole number above 0, not "0"/],
    [['--rate', '1.5'], /--rate/],
    [['--flat-events', '1,x'], /--flat-events/],
    [['--env', 'A'], /--env takes NAME=VALUE/],
  ] as const)
    assert.throws(() => readOptions(args), words);
  const isStandard = (...args: string[]) => readOptions(args).standard;
  assert.deepEqual(
    [isStandard(), isStandard('--out', 'x'), isStandard('--repeats', '1')],
    [true, true, false],
  );
});

test('--connections counts with and without a rate', () => {
  const progress = createProgress(() => undefined);
  const load = (args: readonly string[], rate?: number) =>
    loadOf({ options: readOptions(args), progress }, 'bulk-500', rate).connections;
  assert.deepEqual([load([]), load([], 10)], [8, 256]);
  assert.deepEqual([load(['--connections', '5']), load(['--connections', '5'], 10)], [5, 5]);
});

test('scenarios: names and groups are accepted, others are refused', () => {
  assert.deepEqual(selectScenarios(['bulk-500', 'single']), ['single', 'bulk-500']);
  assert.ok(selectScenarios(['peers']).includes('fastify-single'));
  assert.throws(() => selectScenarios(['singel']), /there is no scenario singel/);
  const all = selectScenarios(['all']);
  assert.ok(['curve', 'half-load', 'engine', 'producer'].every((name) => all.includes(name)));
  assert.ok(!all.includes('deletion-many') && selectScenarios(['deletion']).includes('deletion-many'));
});
