// The histogram for hot paths gives the same output as that of prom-client.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Buckets, HotHistogram } from '../../src/hot-histogram.js';
import { AggregatorRegistry, Histogram, Registry } from '../../src/packages/prom-client.js';

/** The output of a histogram for some values, of either kind. */
async function outputOf(
  make: (registry: Registry) => { observe(value: number): void },
): Promise<{ text: string; added: string }> {
  const registry = new Registry();
  const histogram = make(registry);
  for (const value of [0, 0.5, 1, 1.000001, 3, 7.25, 1e9]) histogram.observe(value);
  const text = await registry.metrics();
  const objects = JSON.parse(JSON.stringify(await registry.getMetricsAsJSON()));
  return { text, added: await AggregatorRegistry.aggregate([objects, objects]).metrics() };
}

test('gives the same output as the histogram of the library, for one process and added up over several', async () => {
  const described = { name: 'sizes', help: 'Sizes.', buckets: [1, 2, 5, 1000] };
  const expected = await outputOf((registry) => new Histogram({ ...described, registers: [registry] }));
  const actual = await outputOf((registry) =>
    new HotHistogram({ ...described, registers: [registry] }).of({}),
  );
  assert.match(expected.text, /^sizes_bucket\{le="5"\} 5$/m);
  assert.match(expected.added, /^sizes_count 14$/m);
  assert.deepEqual(actual, expected);
});

test('accepts finite numbers only', () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY])
    assert.throws(() => new Buckets([1]).observe(value), TypeError);
});

test('with labels gives the same output for each set of them, and nothing but its head without values', async () => {
  const described = {
    name: 'times',
    help: 'Times.',
    buckets: [1, 2],
    labelNames: ['path', 'status'] as const,
  };
  const sets = [
    { path: '/a', status: '200' },
    { path: '/b', status: '503' },
  ];
  const expected = await outputOf((registry) => {
    const histogram = new Histogram({
      ...described,
      labelNames: [...described.labelNames],
      registers: [registry],
    });
    return { observe: (value) => sets.forEach((labels) => void histogram.observe(labels, value)) };
  });
  const actual = await outputOf((registry) => {
    const histogram = new HotHistogram({ ...described, registers: [registry] });
    return { observe: (value) => sets.forEach((labels) => void histogram.of(labels).observe(value)) };
  });
  assert.match(expected.text, /^times_bucket\{le="2",path="\/b",status="503"\} 4$/m);
  assert.deepEqual(actual, expected);

  const registry = new Registry();
  const histogram = new HotHistogram({ ...described, registers: [registry] });
  histogram.of({ path: '/a', status: '503' });
  const lines = (await registry.metrics()).split('\n').filter((line) => /^times/.test(line));
  assert.deepEqual(lines, ['times_sum{path="/a",status="503"} 0', 'times_count{path="/a",status="503"} 0']);
});
