// `npm run bench -- SCENARIO --url …`: measures a deployment that already runs, behind proxies that close connections and
// servers that fail.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';
import { bodySource } from '../../bench/load/bodies.js';
import { countEndings, mergeSeconds, type Second } from '../../bench/load/second.js';
import { sendLoad } from '../../bench/load/sender.js';
import { readOutsideOptions } from '../../bench/outside/options.js';
import { mergeLogs } from '../../bench/outside/page.js';
import { namesIn, usersOf } from '../../bench/outside/remove.js';
import { runOutside } from '../../bench/outside/run.js';
import { resultOf, searchRate } from '../../bench/outside/search.js';
import { createProgress } from '../../bench/progress.js';
import { wayNamed } from '../../bench/throughput/ways.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { plainEnvironment } from '../harness/environment.js';
import { listen } from '../harness/listen.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

const main = fileURLToPath(new URL('../../bench/main.js', import.meta.url));
const dir = tempDir('bench-outside');

const stops: (() => void)[] = [];
after(() => {
  for (const stop of stops) stop();
});

type Ran = { readonly code: number | null; readonly output: string };

/** Runs a command line of the bench in this process, since starting one would take most of the CPU of so short a run. */
async function bench(line: string): Promise<Ran> {
  const [scenario = '', ...args] = line.split(' ');
  let output = '';
  const print = (piece: string) => {
    output += piece;
  };
  try {
    return { code: await runOutside([scenario], args, createProgress(print), print), output };
  } catch (error) {
    return { code: 1, output: `${output}${(error as Error).message}` };
  }
}

async function benchProcess(line: string): Promise<Ran> {
  const child = spawn(process.execPath, [main, ...line.split(' ')], {
    env: plainEnvironment(),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [output, errors, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit'),
  ]);
  return { code: code as number | null, output: output + errors };
}

type Answer = {
  readonly status: number;
  readonly body?: string;
  readonly afterMs?: number;
  readonly close?: boolean;
};

/** A server until the end of the file; `answer` decides what the n-th request gets. */
async function startStub(answer: (request: number) => Answer = () => ({ status: 200 })) {
  const bodies: Buffer[] = [];
  const atMs: number[] = [];
  let most = 0;
  const server = createServer((incoming, response) => {
    atMs.push(performance.now());
    const { status, body = '{}', afterMs = 0, close = false } = answer(atMs.length);
    const pieces: Buffer[] = [];
    incoming.on('data', (piece: Buffer) => pieces.push(piece));
    incoming.on('end', () => {
      bodies.push(Buffer.concat(pieces));
      setTimeout(() => {
        response.writeHead(status, close ? { connection: 'close' } : {}).end(body);
      }, afterMs);
    });
  });
  let open = 0;
  server.on('connection', (socket) => {
    open += 1;
    most = Math.max(most, open);
    socket.once('close', () => {
      open -= 1;
    });
  });
  return { url: await listenUntilEnd(server), bodies, atMs, connections: () => most };
}

async function listenUntilEnd(server: Server): Promise<string> {
  const { url, stop } = await listen(server);
  stops.push(stop);
  return url;
}

type Written = {
  readonly outcome: { readonly endings: Record<string, number>; readonly requests: number };
  readonly highestRate?: number;
  readonly series: readonly { readonly endings: Record<string, number> }[];
};

const readWritten = (out: string) => JSON.parse(readFileSync(`${out}.json`, 'utf8')) as Written;

describe('on a deployment behind a proxy that ends each connection after ten requests', () => {
  let sluice: SluiceHandle;
  let account: TestAccount;
  let url: string;

  before(async () => {
    sluice = await startSluice();
    account = await createTestAccount(sluice, 'Load');
    const served = new WeakMap<object, number>();
    const proxy = createServer((incoming: IncomingMessage, response: ServerResponse) => {
      const count = (served.get(incoming.socket) ?? 0) + 1;
      served.set(incoming.socket, count);
      const forwarded = request(
        `${sluice.baseUrl}${incoming.url}`,
        { method: incoming.method, headers: incoming.headers },
        (reply) => {
          const { connection: _, ...headers } = reply.headers;
          response.writeHead(reply.statusCode ?? 0, {
            ...headers,
            ...(count === 10 ? { connection: 'close' } : {}),
          });
          reply.pipe(response);
        },
      );
      forwarded.once('error', () => response.destroy());
      incoming.pipe(forwarded);
    });
    url = await listenUntilEnd(proxy);
  });
  after(() => sluice?.stop());

  test('everything is acknowledged and stored in several environments, and removed on request', async () => {
    // Somebody else's record, about a user of the loads that are not removed.
    const [app_id] = account.appIds;
    const kept = { app_id, event: 'Kept', identity: 'user-000000@example.com' };
    const headers = { 'content-type': 'application/json' };
    const sent = await fetch(`${url}/api/track`, { method: 'POST', headers, body: JSON.stringify(kept) });
    assert.equal(sent.status, 200);
    const ids = account.appIds.join("','");
    const stored = () => sluice.rows(`SELECT app_id, event, identity FROM events WHERE app_id IN ('${ids}')`);
    await until(async () => (await stored()).length === 1, 'it is stored');
    const out = join(dir, 'proxy');
    const { code, output } = await bench(
      `single --url ${url} --app-id ${account.appIds} --clickhouse-url ${sluice.clickhouse.testerUrl} --database ${sluice.database}` +
        // A slow machine needs all connections; on others most stay unused.
        ` --rate 100 --connections 200 --duration 2 --out ${out} --remove --api-key ${account.apiKey}`,
    );
    assert.equal(code, 0, output);
    const { outcome, series } = readWritten(out);
    assert.deepEqual(outcome.endings, { 200: 200 });
    assert.equal(
      series.reduce((sum, { endings }) => sum + (endings[200] ?? 0), 0),
      200,
    );
    assert.deepEqual(await stored(), [kept], 'the users of the run are deleted, and nobody else');
  });

  test('devices and users of a load are removed from every account whose key is given, and nobody else', async () => {
    const other = await createTestAccount(sluice, 'Other');
    const [main = ''] = account.appIds;
    const [otherMain = ''] = other.appIds;
    const load = (keys: string) =>
      bench(
        `collect --url ${url} --app-id ${main},${otherMain} --rate 4 --connections 50 --duration 1 --out ${dir}/removed --remove ${keys}`,
      );
    const one = await load(`--api-key ${account.apiKey}`);
    assert.equal(one.code, 1, one.output);
    assert.match(
      one.output,
      /80 records were acknowledged, 40 rows are deleted\. Give the --api-key of every/,
    );
    const both = await load(`--api-key ${account.apiKey} --api-key ${otherMain}:${other.apiKey}`);
    assert.equal(both.code, 0, both.output);
    const left = await sluice.rows<{ app_id: string; event: string; n: number }>(
      `SELECT app_id, event, toUInt32(count()) AS n FROM events
        WHERE app_id IN ('${main}', '${otherMain}') AND event != 'Kept' GROUP BY app_id, event ORDER BY event`,
    );
    assert.deepEqual(left, [{ app_id: otherMain, event: 'Page View', n: 36 }]);
  });
});

test('a load at a rate uses no more connections than it may, and begins without a burst', async () => {
  const beginOnce = async () => {
    const stub = await startStub((n) => ({ status: 200, close: n % 7 === 0 }));
    // On a slow machine four connections may be too few for the rate, and the bench ends with 2. That is not the subject here.
    const { code, output } = await bench(
      `single --url ${stub.url} --app-id 1 --rate 200 --connections 4 --duration 2 --errors 100% --out ${dir}/burst`,
    );
    assert.ok(code === 0 || code === 2, output);
    assert.ok(stub.atMs.length >= 4 && stub.atMs.length <= 400, String(stub.atMs.length));
    assert.ok(stub.connections() <= 5, `${stub.connections()} connections`);
    const first = stub.atMs[0] as number;
    return stub.atMs.filter((at) => at < first + 100).length;
  };
  // If the machine pauses just at the beginning, requests that are due by then come in a burst, but not three times.
  let early = await beginOnce();
  for (let tries = 1; tries < 3 && early > 60; tries += 1) early = await beginOnce();
  assert.ok(early <= 60, `${early} requests in the first 100 ms`);
});

test('requests that are due while the generator is paused are sent when it continues, even at the end', async () => {
  const stub = await startStub();
  const seconds: Second[] = [];
  const sent = sendLoad(
    {
      ...{ url: stub.url, path: '/', headers: {}, nextBody: () => Buffer.from('{}'), answer: null },
      ...{ connections: 100, rate: 100, seconds: 0.5 },
    },
    (second) => seconds.push(second),
  );
  setTimeout(() => {
    const endsAt = performance.now() + 400;
    while (performance.now() < endsAt);
  }, 200);
  await sent;
  assert.deepEqual(countEndings(mergeSeconds(seconds)), { 200: 50 });
});

const overloaded = '{"err":{"message":"Try again later","code":"overloaded"}}';

test('errors are counted by status and code, and one more than the budget allows fails the run', async () => {
  const stub = await startStub((n) => (n % 20 === 0 ? { status: 503, body: overloaded } : { status: 200 }));
  const line = `single --url ${stub.url} --app-id 1 --rate 100 --duration 2 --out ${dir}/errors`;
  const strict = await benchProcess(line);
  assert.equal(strict.code, 1, strict.output);
  assert.match(strict.output, /MISSED: errors 5 %, at most 0 %: 10 × 503:overloaded/);
  assert.deepEqual(readWritten(join(dir, 'errors')).outcome.endings, { 200: 190, '503:overloaded': 10 });
  assert.match(readFileSync(join(dir, 'errors.csv'), 'utf8'), /^time,requests,200,503:overloaded,p50_ms,/);
  assert.match(
    readFileSync(join(dir, 'errors.prom'), 'utf8'),
    /^sluice_bench_requests_total\{scenario="single",ending="503:overloaded"\} 10$/m,
  );
  const forgiving = await bench(`${line} --errors 5%`);
  assert.equal(forgiving.code, 0, forgiving.output);
});

test('without a server each request is an error, and the run ends in time', async () => {
  // Nobody listens at this port, whatever other programs do.
  const { code, output } = await bench(
    `single --url http://127.0.0.1:1 --app-id 1 --rate 50 --duration 1 --out ${dir}/away`,
  );
  assert.equal(code, 1);
  assert.match(output, /errors 100 %, at most 0 %: 50 × connection/);
});

test('a broken bound fails the run, and requests that were due but never sent count', async () => {
  const slow = await startStub(() => ({ status: 200, afterMs: 400 }));
  const line = `single --url ${slow.url} --app-id 1 --rate 50 --connections 2 --duration 2 --errors 100% --out ${dir}/slo`;
  const { code, output } = await bench(`${line} --slo p50=200ms`);
  assert.equal(code, 1);
  assert.match(output, /MISSED: p50 \d+(\.\d+)? ms, at most 200/);
  assert.match(output, /\d+ were due but not sent, because no connection was free/);
  assert.match(output, /limit: connections/);
  const kept = await bench(line);
  assert.equal(kept.code, 2, kept.output);
});

test('the highest rate that keeps the bounds is found in steps, and the exit code says when there is none', async () => {
  // Serves the requests of the first step in time, and all later ones too late.
  const limited = await startStub((n) => ({ status: 200, afterMs: n > 50 ? 6_000 : 0 }));
  const out = join(dir, 'search');
  const line = `single --url ${limited.url} --app-id 1 --duration 1 --out ${out}`;
  const found = await bench(`${line} --slo p90=5s --step 50`);
  assert.equal(found.code, 0, found.output);
  assert.equal(readWritten(out).highestRate, 50);
  const none = await bench(`${line} --slo p50=0.001ms --step 100`);
  assert.equal(none.code, 1, none.output);
  assert.match(none.output, /no rate keeps the bounds/);
});

type Limit = 'rate' | 'generator' | 'connections' | 'waiting';

/** A step of a search, which keeps its bounds if the rate was the limit. */
function stepOf(rate: number, limit: Limit) {
  const latencyMs = { p50: 1, p90: 1, p99: 1, 'p99.9': 1, 'p99.99': 1, max: 1 };
  const outcome = { requests: 1, perSecond: 1, endings: {}, errors: 0, limit, latencyMs };
  return { rate, kept: limit === 'rate', outcome };
}

test('a search that the generator ended is distinguished from one that the service ended', async () => {
  const result = (...limits: Limit[]) => resultOf(limits.map((limit, at) => stepOf(100 * (at + 1), limit)));
  for (const limit of ['generator', 'connections'] as const)
    assert.equal(result('rate', limit).endedByGenerator, true, limit);
  assert.equal(result('generator').endedByGenerator, true);
  assert.equal(result('rate', 'waiting', 'generator').endedByGenerator, false);
  assert.equal(result('rate', 'rate').highest?.rate, 200);
  const stub = await startStub(() => ({ status: 200, afterMs: 100 }));
  const { code, output } = await bench(
    `single --url ${stub.url} --app-id 1 --duration 1 --connections 1 --slo p50=60s --errors 100% --step 500 --out ${dir}/full`,
  );
  assert.equal(code, 2, output);
  assert.match(output, /the generator cannot send more: no rate kept the bounds/);
});

test('a search without a given step doubles the rate, then narrows it to a tenth', async () => {
  const tried = await searchRate(undefined, async (rate) => stepOf(rate, rate <= 1_000 ? 'rate' : 'waiting'));
  const highest = Math.max(...tried.filter(({ kept }) => kept).map(({ rate }) => rate));
  assert.ok(highest > 900 && highest <= 1_000, String(highest));
  assert.ok(tried.length < 12);
});

test('records of a file are sent in turn, gzipped, with the environment of each', async () => {
  const stub = await startStub();
  const file = join(dir, 'records.ndjson.gz');
  writeFileSync(
    file,
    gzipSync('{"event":"a","identity":"x"}\n\n{"event":"b","identity":"y","app_id":"other"}\n'),
  );
  const { code, output } = await bench(
    `single --url ${stub.url} --app-id 7 --app-id 8 --rate 20 --duration 1 --payloads ${file} --gzip --out ${dir}/payloads`,
  );
  assert.equal(code, 0, output);
  // The bodies are sorted, because on several connections a later request may arrive first.
  const sent = stub.bodies.map((body) => {
    const { app_id, event } = JSON.parse(gunzipSync(body).toString());
    return `${app_id} ${event}`;
  });
  const turns = ['7 a', '7 b', '8 a', '8 b'];
  assert.deepEqual(
    sent.sort(),
    turns.flatMap((turn) => Array(5).fill(turn)),
  );
});

test('keys of a file get a suffix whenever the file begins again, so that no record is a repeat', async () => {
  const stub = await startStub();
  const file = join(dir, 'keyed.ndjson');
  writeFileSync(file, '{"event":"a","identity":"x","idempotency_key":"k"}\n');
  const args = `--url ${stub.url} --app-id 1 --rate 20 --duration 1 --payloads ${file} --out ${dir}/keyed`;
  const { code, output } = await bench(`single ${args}`);
  assert.equal(code, 0, output);
  const keys = stub.bodies.map((body) => JSON.parse(body.toString()).idempotency_key as string);
  assert.equal(new Set(keys).size, 20);
  assert.ok(
    keys.every((key) => /^k-/.test(key)),
    keys[0],
  );
  assert.match((await bench(`collect ${args}`)).output, /messages of the client library/);
});

test('merge adds up what several generators found, errors by their kind', async () => {
  const stub = await startStub((n) => (n % 10 === 0 ? { status: 503, body: overloaded } : { status: 200 }));
  const outs = [join(dir, 'one'), join(dir, 'two')];
  await Promise.all(
    outs.map((out) => bench(`single --url ${stub.url} --app-id 1 --rate 50 --duration 1 --out ${out}`)),
  );
  const merged = join(dir, 'merged');
  const printed: string[] = [];
  mergeLogs([...outs.map((out) => `${out}.hlog`), '--out', merged], (piece) => void printed.push(piece));
  assert.match(printed.join(''), /^2 logs, ms .*\n +100 .* 10 %$/m);
  const prometheus = readFileSync(`${merged}.prom`, 'utf8');
  assert.match(prometheus, /^sluice_bench_requests_total\{scenario="merged",ending="503:overloaded"\} 10$/m);
  assert.match(prometheus, /^sluice_bench_latency_seconds_count\{scenario="merged"\} 90$/m);
  assert.match((await benchProcess(`merge ${main}`)).output, /is no histogram log/);
});

test('the users of a load are the users that its bodies name, and no other load has one of them', () => {
  const sent = [{ keyPrefix: 'k', requests: 5 }];
  for (const name of ['single', 'bulk-10', 'user-properties', 'identify', 'collect']) {
    const way = wayNamed(name);
    const appIds = ['1', '2'];
    const namedBy = (keyPrefix: string) => {
      const next = bodySource({ way, appIds, keyPrefix, ownUsers: true });
      const bodies = Array.from({ length: 5 }, () => next().toString());
      return new Set(
        bodies.flatMap((body) => [...body.matchAll(/"identity":"([^"]+)"/g)].map(([, user = '']) => user)),
      );
    };
    const named = namedBy('k');
    const users = namesIn(usersOf(way, sent, appIds.length)).map(({ identity }) => identity);
    assert.deepEqual(new Set(users), named, name);
    assert.equal(users.length, named.size);
    for (const other of namedBy('l')) assert.ok(!named.has(other), other);
  }
  const records = [{ user_id: 7 }, { user_id: '7' }, { identity: 'a', user_id: 8 }, { event: 'x' }];
  assert.deepEqual(namesIn(records), [{ userId: '7' }, { identity: 'a' }, { userId: 8 }]);
});

test('options that are wrong are named', () => {
  const common = ['--url', 'http://a', '--app-id', '1'];
  for (const [args, words] of [
    [['--app-id', '1'], /--url is missing/],
    [['--url', 'http://a'], /--app-id/],
    [['--url', 'ftp://a', '--app-id', '1'], /--url must be a URL/],
    [[...common, '--errors', 'few'], /--errors takes a share/],
    [[...common, '--errors', '200%'], /--errors takes a share/],
    [[...common, '--slo', 'p98=2ms'], /--slo takes bounds/],
    [[...common, '--slo', 'p99=2'], /--slo takes bounds/],
    [[...common, '--step', '5'], /--step belongs to --slo/],
    [[...common, '--remove'], /--remove and --api-key/],
    [[...common, '--remove', '--api-key', 'k', '--payloads', 'f'], /add --remove-payload-users/],
    [[...common, '--remove', '--api-key', 'k', '--remove-payload-users'], /belongs to --payloads/],
    [[...common, '--payloads', 'f', '--remove-payload-users'], /belongs to --payloads/],
    [[...common, '--app-id', '2', '--write-key', 'w'], /--write-key is the key of one environment/],
    [[...common, '--rate', '0'], /--rate must be a whole number/],
  ] as const) {
    assert.throws(() => readOutsideOptions(args), words);
  }
  assert.equal(readOutsideOptions([...common, '--errors', '0.1%']).errorsMax, 0.001);
  assert.deepEqual(
    readOutsideOptions([...common, '--remove', '--api-key', 'a:b', '--api-key', '77:c']).apiKeys,
    [
      { appId: '1', apiKey: 'a:b' },
      { appId: '77', apiKey: 'c' },
    ],
  );
  assert.deepEqual(readOutsideOptions([...common, '--slo', 'p99=20ms,max=1s']).bounds, [
    { percentile: 'p99', ms: 20 },
    { percentile: 'max', ms: 1_000 },
  ]);
});
