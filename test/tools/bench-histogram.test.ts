// The bench: the histogram of durations.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { curveOf, newHistogram, percentileMs, record } from '../../bench/load/histogram.js';

function histogramOf(milliseconds: readonly number[]) {
  const histogram = newHistogram();
  for (const ms of milliseconds) record(histogram, ms);
  return histogram;
}

test('keeps durations exactly below 2 ms and within a thousandth above, up to the longest', () => {
  for (const ms of [0, 0.001, 1, 1.023, 2.046, 2.049, 4.097, 65.536, 1_000.003, 123_456.789]) {
    const found = percentileMs(histogramOf([ms, 1_000_000]), 50);
    assert.ok(found >= ms && found <= ms * (ms < 2 ? 1 : 1.001), `${ms} is found as ${found}`);
  }
  const longest = percentileMs(histogramOf([5, 70]), 100);
  assert.ok(longest >= 70 && longest < 70.07, String(longest));
});

test('one slow answer of a hundred is beyond the 99th percentile, two are not', () => {
  const fast = Array.from({ length: 99 }, () => 0.1);
  assert.equal(percentileMs(histogramOf([...fast, 2]), 99), 0.1);
  assert.equal(percentileMs(histogramOf([...fast.slice(1), 2, 2]), 99), 2);
});

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
