// What pages say of speed and size is what the bench published.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { figure, median } from '../../bench/figures.js';
import type { Results } from '../../bench/results.js';

const root = new URL('../../../', import.meta.url);
const read = (path: string) => readFileSync(new URL(path, root), 'utf8');
const results = JSON.parse(read('bench/results/all.json')) as Pick<Results, 'ways' | 'backlog'>;
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
  ['single', 'one event a request, µs'],
  ['bulk-500', 'bulk of 500, µs an event'],
] as const) {
  test(`the page on scale says what an event costs each process, and what a core of it carries: ${name}`, () => {
    const page = read('deploy/SCALE.md');
    const costs = processes.map((process) =>
      median(runsOf(name).map(({ cpu }) => cpu[process] ?? Number.NaN)),
    );
    const lines = [
      `| ${[title, ...costs.map(figure)].join(' | ')} |`,
      `| ${['events a second a core', ...costs.map((cost) => roundedDown((usedShare * 1e6) / cost))].join(' | ')} |`,
    ].join('\n');
    assert.ok(page.includes(lines), `deploy/SCALE.md lacks\n${lines}`);
    const highest = roundedDown(median(runsOf(name).map(({ recordsPerSecond }) => recordsPerSecond)));
    const row = `| ${title.split(',')[0]} | ${highest} |`;
    assert.ok(page.includes(row), `deploy/SCALE.md lacks\n${row}`);
  });
}

test('the page on scale says what an event costs with several servers', () => {
  const { servers } = JSON.parse(read('bench/results/servers.json')) as Pick<Results, 'servers'>;
  const titles: Readonly<Record<string, string>> = {
    single: 'one event a request',
    'bulk-500': 'bulk of 500',
  };
  assert.equal(servers?.ways.length, 2);
  for (const { name, eventsPerSecond, levels } of servers.ways) {
    const costs = levels.map(({ runs }) => figure(median(runs.map(({ cpuSum }) => cpuSum))));
    const title = `${titles[name]}, ${eventsPerSecond.toLocaleString('en-US')} events a second`;
    const row = `| ${[title, ...costs].join(' | ')} |`;
    assert.ok(read('deploy/SCALE.md').includes(row), `deploy/SCALE.md lacks\n${row}`);
  }
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
  assert.equal(lines.length, 8);
  for (const line of lines)
    assert.ok(read('src/export/README.md').includes(`${line}\n`), `src/export/README.md lacks\n${line}`);
});
