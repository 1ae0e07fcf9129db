// The figures of speed and size on pages are those that the bench published.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { figure, median } from '../../bench/figures.js';
import { shareOfWrk } from '../../bench/report/sections.js';
import { costsOf, timesOfFullLoad } from '../../bench/report/targets.js';
import type { Results } from '../../bench/results.js';
import { keyIndex } from '../../src/tuning.js';

const root = new URL('../../../', import.meta.url);
const read = (path: string) => readFileSync(new URL(path, root), 'utf8');
const published = (name: string) => JSON.parse(read(`bench/results/${name}.json`)) as Results;
const results = published('all');
const processes = ['api', 'redis', 'worker', 'clickhouse'] as const;
/** A third of each core stays free. */
const usedShare = 2 / 3;

/** Two digits, rounded down: nobody buys too few machines by rounding. */
function roundedDown(value: number): string {
  const step = 10 ** (Math.floor(Math.log10(value)) - 1);
  return (Math.floor(value / step) * step).toLocaleString('en-US');
}

function runsOf(name: string) {
  const runs = results.ways.find((way) => way.name === name)?.runs ?? [];
  assert.ok(runs.length >= 3, `${runs.length} runs of ${name}`);
  return runs;
}

for (const [name, title] of [
  ['single', 'one event per request, µs'],
  ['bulk-500', 'bulk of 500, µs per event'],
] as const) {
  test(`the page on scale says what an event costs each process, and what a core of it carries: ${name}`, () => {
    const page = read('deploy/SCALE.md');
    const costs = processes.map((process) =>
      median(runsOf(name).map(({ cpu }) => cpu[process] ?? Number.NaN)),
    );
    const lines = [
      `| ${[title, ...costs.map(figure)].join(' | ')} |`,
      `| ${['events per second and core', ...costs.map((cost) => roundedDown((usedShare * 1e6) / cost))].join(' | ')} |`,
    ].join('\n');
    assert.ok(page.includes(lines), `deploy/SCALE.md lacks\n${lines}`);
    const highest = roundedDown(median(runsOf(name).map(({ recordsPerSecond }) => recordsPerSecond)));
    const row = `| ${title.split(',')[0]} | ${highest} |`;
    assert.ok(page.includes(row), `deploy/SCALE.md lacks\n${row}`);
  });
}

test('the page on scale says what several servers take while nothing is sent', () => {
  const idle = published('servers').servers?.idle.map(({ cpu }) =>
    figure(processes.reduce((sum, each) => sum + (cpu[each] ?? 0), 0)),
  );
  assert.equal(idle?.length, 3);
  const row = `| nothing sent, ms of CPU a second | ${idle.join(' | ')} |`;
  assert.ok(read('deploy/SCALE.md').includes(row), `deploy/SCALE.md lacks\n${row}`);
});

test('the manifests say what a process takes in memory at half load', () => {
  const { halfLoad } = results;
  assert.ok(halfLoad);
  for (const [name, file] of [
    ['api', 'api.yaml'],
    ['worker', 'worker.yaml'],
  ] as const) {
    const said = `the process takes ${Math.round(median(halfLoad.samples.map(({ memory }) => memory[name] ?? 0)) / 1e6)} MB`;
    assert.ok(
      read(`deploy/kubernetes/${file}`).includes(`${said} (bench/results/all.md)`),
      `${file} lacks: ${said}`,
    );
  }
});

test('the runbook says what a key takes in the index', () => {
  const said = [
    ...read('deploy/RUNBOOK.md').matchAll(/(\d+)(?: bytes per key\), workers| for its key once)/g),
  ];
  const bytes = String(Math.ceil(published('keys').keys?.bytesPerKey ?? Number.NaN));
  assert.deepEqual(
    said.map(([, each]) => each),
    [bytes, bytes],
  );
});

test('the runbook says what a key takes in a worker', () => {
  const { filterBitsPerKey, filterBytesMax } = keyIndex;
  const said = `takes ${filterBitsPerKey / 8} bytes of memory for each key in the index, and up to half as much again for future keys, at most ${filterBytesMax / 1024 ** 2} MiB`;
  assert.ok(read('deploy/RUNBOOK.md').replaceAll(/\s+/g, ' ').includes(said), said);
});

test('the bench’s page quotes its published results', () => {
  const page = read('bench/README.md');
  const rows = {
    'one event a request, µs': costsOf(runsOf('single')),
    'with keys': costsOf(runsOf('single-keys')),
    'with keys, 64 connections': costsOf(runsOf('single-keys-64')),
    'bulk of 500': costsOf(runsOf('bulk-500')),
    'bulk of 500, with keys': costsOf(runsOf('bulk-500-keys')),
    'one event a request at half of the highest rate, times of full load': timesOfFullLoad(
      results.curve ?? [],
      results.curve?.find(({ share }) => share === 0.5)?.runs ?? [],
    ),
    'p99 of the minutes at half load, ms': results.halfLoad?.runs[0]?.p99OfMinutes ?? [],
    'what wrk takes of the service’s CPU': shareOfWrk(results.ways),
  };
  const lines = Object.entries(rows).map(([title, values]) => {
    const figures = [median(values), Math.min(...values), Math.max(...values)].map(figure);
    return `| ${[title, ...figures].join(' | ')} |`;
  });
  const table = lines.join('\n');
  assert.ok(page.includes(table), `bench/README.md lacks\n${table}`);
  const said = Number(/(\d+) minutes on two cores/.exec(page)?.[1]);
  assert.ok(Math.abs(results.seconds / 60 - said) <= 5, `the session took ${results.seconds / 60} min`);
});

test('the runbook says what an event takes in the backlog', () => {
  const said = /takes (\d+) to (\d+) bytes in the\s+backlog/.exec(read('deploy/RUNBOOK.md'));
  const [least, most] = [Number(said?.[1]), Number(said?.[2])];
  const { redisBytesPerEvent = Number.NaN } = results.backlog ?? {};
  assert.ok(least <= redisBytesPerEvent && redisBytesPerEvent <= most, `${redisBytesPerEvent} bytes`);
});

test('the page on exports has the published tables', () => {
  const results = read('bench/results/desk.md');
  const section = /^## An export of one user$(.*?)^## /ms.exec(results)?.[1] ?? '';
  const lines = section.split('\n').filter((line) => line.startsWith('|'));
  assert.ok(lines.length > 0);
  for (const line of lines)
    assert.ok(
      read('src/privacy/export/README.md').includes(`${line}\n`),
      `src/privacy/export/README.md lacks\n${line}`,
    );
});
