import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Histogram } from '../bench/histogram.js';

function histogramOf(values: readonly number[]): Histogram {
  const histogram = new Histogram();
  for (const value of values) histogram.record(value);
  return histogram;
}

test('counts every microsecond by itself up to 2047 µs', () => {
  for (const value of [0, 1, 2, 1023, 1024, 2046, 2047]) {
    const histogram = histogramOf([value, 1_000_000]);
    assert.equal(histogram.percentile(50), value);
  }
});

test('is at most a thousandth above a longer duration, and never below it', () => {
  for (const value of [2048, 2049, 4095, 4096, 4097, 65_535, 65_536, 1_000_003, 123_456_789, 2 ** 31 - 2]) {
    const found = histogramOf([value, 2 ** 31 - 1]).percentile(50);
    assert.ok(found >= value && found <= value * 1.001, `${value} is found as ${found}`);
  }
});

test('never says more than the longest duration that was recorded', () => {
  const histogram = histogramOf([5000, 70_001]);
  assert.equal(histogram.percentile(100), 70_001);
  assert.equal(histogram.max, 70_001);
});

test('a percentile is the smallest duration that as many do not exceed', () => {
  const histogram = histogramOf(Array.from({ length: 1000 }, (_, i) => i + 1));
  assert.equal(histogram.percentile(50), 500);
  assert.equal(histogram.percentile(99), 990);
  assert.equal(histogram.percentile(99.9), 999);
  assert.equal(histogram.percentile(100), 1000);
  assert.equal(histogram.percentile(0), 1);
  assert.equal(histogram.mean, 500.5);
});

test('one slow answer of a hundred is beyond the 99th percentile, two are not', () => {
  const fast = Array.from({ length: 99 }, () => 100);
  assert.equal(histogramOf([...fast, 2000]).percentile(99), 100);
  assert.equal(histogramOf([...fast.slice(1), 2000, 2000]).percentile(99), 2000);
});

test('rounds fractions, counts what is below zero as zero and what is too long as the longest', () => {
  assert.equal(histogramOf([10.4]).percentile(50), 10);
  assert.equal(histogramOf([10.5]).percentile(50), 11);
  assert.equal(histogramOf([-3]).percentile(50), 0);
  assert.equal(histogramOf([2 ** 40]).percentile(50), 2 ** 31 - 1);
});

test('says that nothing was recorded', () => {
  const histogram = new Histogram();
  assert.equal(histogram.count, 0);
  assert.ok(Number.isNaN(histogram.percentile(99)));
});

test('adds up with another one as if it had counted everything itself', () => {
  const [a, b] = [
    [3, 500, 70_000],
    [1, 9_000, 9_001],
  ];
  const added = histogramOf(a as number[]);
  added.add(histogramOf(b as number[]));
  const all = histogramOf([...(a as number[]), ...(b as number[])]);
  assert.equal(added.count, 6);
  assert.equal(added.max, all.max);
  assert.equal(added.mean, all.mean);
  assert.deepEqual(added.curve(), all.curve());
});

test('agrees with sorting on random durations', () => {
  let seed = 7;
  const random = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const values = Array.from({ length: 20_000 }, () => Math.round(10 ** (1 + 5 * random())));
  const sorted = [...values].sort((x, y) => x - y);
  const histogram = histogramOf(values);
  for (const percent of [1, 25, 50, 90, 99, 99.9]) {
    const exact = sorted[Math.ceil((percent / 100) * sorted.length) - 1] as number;
    const found = histogram.percentile(percent);
    assert.ok(found >= exact && found <= exact * 1.001, `${percent} %: ${found} instead of ${exact}`);
  }
});
