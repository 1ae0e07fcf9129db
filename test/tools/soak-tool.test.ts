// The verdicts of the soak: which series rise, and which events are not as promised.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { type Point, trendOf } from '../../bench/report/trend.js';
import { listen } from '../harness/listen.js';
import type { SluiceHandle } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { startSoakLoad } from '../soak/load.js';

const points = (valueAt: (index: number) => number): Point[] =>
  Array.from({ length: 120 }, (_, index) => ({ atMs: index * 5_000, value: valueAt(index) }));

const trend = (valueAt: (index: number) => number, floor = 1) => trendOf(points(valueAt), floor);

test('calls a series flat that stays, swings, falls or warms up', () => {
  const flat: ((index: number) => number)[] = [
    () => 100,
    (i) => 100 + 50 * Math.sin(i),
    (i) => 200 - i,
    (i) => Math.min(100, 5 * i),
    // A quarter of the points are outliers.
    (i) => (i % 4 === 0 ? 10 * i : 100),
  ];
  for (const valueAt of flat) assert.ok(trend(valueAt).flat, String(valueAt));
});

test('calls a series growing that rises by more than a tenth, even with noise and restarts in between', () => {
  const { flat, perHour } = trend((i) => 100 + i / 2 + 10 * Math.sin(i));
  assert.equal(flat, false);
  assert.ok(Math.abs(perHour - 360) < 20, String(perHour));
  assert.equal(trend((i) => (i % 10 === 0 ? 0 : 100 + i)).flat, false);
  assert.ok(trend((i) => 1 + i / 100, 4).flat, 'a growth below the floor means nothing');
});

async function checkAgainst(status: number, rows: readonly object[]) {
  const server = createServer((request, response) => {
    request.resume().once('end', () => response.writeHead(status).end('{}'));
  });
  const { url, stop } = await listen(server);
  const load = startSoakLoad({ targets: () => [url], appId: '1', clients: 1, rate: 100 });
  await until(() => load.requests > 0, 'a request was sent');
  await load.stop();
  stop();
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
