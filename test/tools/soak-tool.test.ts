// The verdicts of the soak: which series rise, and which events are not as promised.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { type Point, trendOf } from '../../bench/report/trend.js';
import type { SluiceHandle } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { startSoakLoad } from '../soak/load.js';
import { plot } from '../soak/plot.js';
import { series } from '../soak/samples.js';

const points = (valueAt: (index: number) => number): Point[] =>
  Array.from({ length: 120 }, (_, index) => ({ atMs: index * 5_000, value: valueAt(index) }));

test('calls a series flat that stays, swings, falls or warms up', () => {
  assert.ok(
    trendOf(
      points(() => 100),
      1,
    ).flat,
  );
  assert.ok(
    trendOf(
      points((i) => 100 + 50 * Math.sin(i)),
      1,
    ).flat,
  );
  assert.ok(
    trendOf(
      points((i) => 200 - i),
      1,
    ).flat,
  );
  assert.ok(
    trendOf(
      points((i) => Math.min(100, 5 * i)),
      1,
    ).flat,
  );
  // A quarter of the points are outliers.
  assert.ok(
    trendOf(
      points((i) => (i % 4 === 0 ? 10 * i : 100)),
      1,
    ).flat,
  );
});

test('calls a series growing that rises by more than a tenth, even with noise and restarts in between', () => {
  const trend = trendOf(
    points((i) => 100 + i / 2 + 10 * Math.sin(i)),
    1,
  );
  assert.equal(trend.flat, false);
  assert.ok(Math.abs(trend.perHour - 360) < 20, String(trend.perHour));
  assert.equal(
    trendOf(
      points((i) => (i % 10 === 0 ? 0 : 100 + i)),
      1,
    ).flat,
    false,
  );
  assert.ok(
    trendOf(
      points((i) => 1 + i / 100),
      4,
    ).flat,
    'a growth below the floor means nothing',
  );
});

async function checkAgainst(status: number, rows: readonly object[]) {
  const server = createServer((request, response) => {
    request.resume().once('end', () => response.writeHead(status).end('{}'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const load = startSoakLoad({ targets: () => [url], appId: '1', clients: 1, rate: 100 });
  await until(() => load.requests > 0, 'a request was sent');
  await load.stop();
  server.close();
  return load.check({ rows: async () => rows } as unknown as SluiceHandle);
}

test('finds acknowledged events that are not stored, and refused ones that are', async () => {
  const lost = await checkAgainst(200, []);
  assert.ok(lost.acknowledged > 0 && lost.lost === lost.acknowledged);
  const kept = await checkAgainst(429, [{ n: 0, copies: '1' }]);
  assert.deepEqual([kept.acknowledged, kept.unexpected], [0, 1]);
});

test('finds events that are doubled, and allows one row for what was not answered', async () => {
  // No server listens there, so all outcomes are unknown.
  const load = startSoakLoad({ targets: () => ['http://127.0.0.1:1'], appId: '1', clients: 1, rate: 100 });
  await until(() => load.requests > 0, 'a request was sent');
  await load.stop();
  const rows = [{ n: 0, copies: '2' }];
  const checked = await load.check({ rows: async () => rows } as unknown as SluiceHandle);
  assert.equal(checked.doubled, 1);
  assert.equal(checked.lost, 0);
  assert.ok(checked.unknown >= 1 && checked.unknownStored === 1);
});

test('plots every series', async () => {
  const samples = Object.fromEntries(Object.keys(series).map((name) => [name, points((i) => i)])) as never;
  const svg = await plot(samples, [{ atMs: 60_000, what: 'Redis is killed' }]);
  assert.match(svg, /^<svg/);
  for (const name of Object.keys(series)) assert.ok(svg.includes(name), name);
});
