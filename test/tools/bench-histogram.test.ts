// The bench: the histogram of durations.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { curveOf, newHistogram, percentileMs, record } from '../../bench/load/histogram.js';

function histogramOf(milliseconds: readonly number[]) {
  const histogram = newHistogram();
  for (const ms of milliseconds) record(histogram, ms);
  return histogram;
}

test('counts negative durations as zero, too long ones as the longest, and has no figures when it is empty', () => {
  assert.equal(percentileMs(histogramOf([-3]), 50), 0);
  assert.ok(percentileMs(histogramOf([2 ** 40]), 50) >= 1_200_000);
  assert.ok(Number.isNaN(percentileMs(newHistogram(), 99)));
});

test('the curve agrees with sorting on random durations', () => {
  let seed = 7;
  const random = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const values = Array.from({ length: 20_000 }, () => Math.round(10 ** (1 + 5 * random())) / 1_000);
  const sorted = [...values].sort((x, y) => x - y);
  for (const { percent, ms } of curveOf(histogramOf(values))) {
    const exact = sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length - 1e-6) - 1)] as number;
    assert.ok(ms >= exact * 0.999 && ms <= exact * 1.002, `${percent} %: ${ms} instead of ${exact}`);
  }
});
