// Writes the results of a run of `npm run chaos` to RESULTS.md.

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Layout } from './deployment.js';
import { crashKinds, faultKinds } from './faults.js';
import { countFaults, countKinds } from './report.js';
import type { RoundResult } from './round.js';
import type { Run } from './run-file.js';
import type { Tool } from './tools.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const file = join(root, 'test', 'chaos', 'RESULTS.md');

export function readCommit(): string {
  try {
    return execFileSync('git', ['rev-parse', '--short', 'HEAD'], {
      cwd: root,
      encoding: 'utf8',
      stdio: 'pipe',
    }).trim();
  } catch {
    return 'unknown'; // Not a clone.
  }
}

const allTools: ReadonlySet<Tool> = new Set(['strace', 'loop', 'faketime', 'cc', 'mount']);

/** The fault kinds and crash points that never took effect. */
export function missingFaults(results: readonly RoundResult[], layout: Layout = 'one'): string[] {
  const counts = countFaults(results);
  const crashes = layout === 'one' ? crashKinds : [];
  return [...faultKinds(allTools, layout), ...crashes].filter((name) => (counts.get(name) ?? 0) === 0);
}

/** Kinds of broken promises that the table shows even if none was broken. */
const namedKinds = ['lost', 'doubled', 'resurrected', 'over-deleted'];

/** The section about mutants, which `--mutants` writes. */
const mutantsHeading = '## The check itself';

const onHosts = (heading: string, servers: string, layout: Layout) => [
  heading,
  `${servers} (network namespaces), \`REDIS_REPLICAS_ACK=1\`, two ClickHouse servers,`,
  `two API processes and two workers (\`npm run chaos -- --${layout}\`). One host is lost at a time.`,
];

/** The headings of the other layouts' sections, and what these say first. */
const sections: Readonly<Record<Exclude<Layout, 'one'>, readonly string[]>> = {
  three: [
    '## Three of each',
    'A Redis Cluster of three masters, three ClickHouse servers, two API processes and two workers, six shards; each master and',
    'each server behind a proxy (`npm run chaos -- --three`).',
  ],
  nodes: onHosts(
    '## Redis on three hosts',
    'A primary, two replicas and three sentinels on three hosts',
    'nodes',
  ),
  cluster: onHosts(
    '## A Redis Cluster on nine hosts',
    'Three masters with two replicas each on nine hosts',
    'cluster',
  ),
  disks: [
    '## Full disks',
    'Two API processes, two workers, Redis and ClickHouse; the disk of Redis, of ClickHouse, or one disk of both (192 MiB) is filled to the',
    'last byte while all clients go on and processes are killed, and freed again (`npm run chaos -- --disks`).',
  ],
};

/** The first table of a section. */
function totalsOf(results: readonly RoundResult[]): string[] {
  const sum = (count: (result: RoundResult) => number) =>
    results.reduce((total, result) => total + count(result), 0);
  const kinds = countKinds(results);
  const faults = countFaults(results);
  const others = Object.entries(kinds).filter(([kind]) => !namedKinds.includes(kind));
  const rows: [string, string | number][] = [
    ['rounds', results.length],
    ['faults that took effect', [...faults.values()].reduce((total, count) => total + count, 0)],
    ['acknowledged records', sum(({ acknowledged }) => acknowledged)],
    ['accepted deletion requests', sum(({ deletions }) => deletions)],
    ['calls for complete ones', sum(({ calls }) => calls)],
    ['exports that were read', sum(({ exports }) => exports)],
    ['records of suppressed users', sum(({ keptOut }) => keptOut)],
    ...namedKinds.map((kind): [string, number] => [kind, kinds[kind] ?? 0]),
    [
      'other broken promises',
      others.length === 0 ? 0 : others.map(([kind, count]) => `${kind}: ${count}`).join(', '),
    ],
    ['unknown outcomes', sum(({ unknown }) => unknown)],
    ['of these stored', sum(({ unknownStored }) => unknownStored)],
    ['time in rounds', `${Math.round(sum(({ tookMs }) => tookMs) / 60_000)} min`],
  ];
  return ['| | |', '|---|---|', ...rows.map(([name, value]) => `| ${name} | ${value} |`)];
}

function brokenRounds(results: readonly RoundResult[]): string[] {
  const broken = results.filter((result) => result.broken.length > 0);
  if (broken.length === 0) return [];
  return [
    `Seeds of rounds with a broken promise: ${broken.map(({ schedule }) => schedule.seed).join(', ')}`,
    '',
  ];
}

/** Says how many kinds of faults did not take effect in a run, which may have been stopped early. */
function incomplete(results: readonly RoundResult[], layout: Layout): string[] {
  const missing = missingFaults(results, layout).length;
  const of = layout === 'one' ? 'kinds of faults and crash points' : 'kinds of faults';
  return missing === 0 ? [] : [`This run is not complete: ${missing} ${of} did not take effect yet.`, ''];
}

/** Writes the section of a layout and keeps the others; that of the layout `one` is the beginning of the file. */
export function writeResults(run: Run, results: readonly RoundResult[], layout: Layout): void {
  const opening = [
    ...totalsOf(results),
    '',
    `Seed ${run.seed}, begun ${run.startedAt}, last written ${new Date().toISOString()} at commit ${readCommit()}.`,
    versions(),
    '',
    ...incomplete(results, layout),
    ...brokenRounds(results),
  ];
  const faults = countFaults(results);
  const counted = faultKinds(allTools, layout).map((name) => `| ${name} | ${faults.get(name) ?? 0} |`);
  const table = ['| fault | took effect |', '|---|---|', ...counted];
  if (layout !== 'one') {
    const [heading = '', ...about] = sections[layout];
    writeSection(heading, [...about, '', ...opening, ...moreOf(layout, results), ...table, '']);
    return;
  }
  const text = [
    '# What the fault harness found',
    '',
    'Written by `npm run chaos`; do not edit. A round is 10 to 30 s of clients and faults on two API processes, two',
    'workers, Redis and ClickHouse; then every answer is compared with what is stored.',
    '',
    ...opening,
    '## Faults by kind',
    '',
    ...table,
    `| crash points: first, second and third passing, in restores, and before Redis is emptied | ${crashKinds.filter((name) => (faults.get(name) ?? 0) > 0).length} of ${crashKinds.length} |`,
    '',
    '## Seeds',
    '',
    '`SEED=n npm run chaos` replays the schedule of a round.',
    '',
    wrapped(results.map(({ schedule }) => String(schedule.seed))),
    '',
  ].join('\n');
  const { three, nodes, cluster, disks } = sections;
  const headings = [mutantsHeading, ...[three, nodes, cluster, disks].map(([heading = '']) => heading)];
  const kept = headings.map(sectionOf).filter((section) => section !== '');
  writeFileSync(file, [text, ...kept].join('\n'));
}

/** What only rounds of some layouts have: how long take-overs took, and which disks were full. */
function moreOf(layout: Layout, results: readonly RoundResult[]): string[] {
  if (layout === 'three') return [];
  if (layout !== 'disks') {
    const times = results.flatMap(({ takeOversMs = [] }) => takeOversMs).sort((one, other) => one - other);
    const at = (share: number) => ((times[Math.ceil(share * times.length) - 1] ?? 0) / 1_000).toFixed(1);
    return [
      `Seconds until the first record that was sent after the loss of a primary was accepted: median ${at(0.5)}, worst ${at(1)}, of ${times.length}.`,
      '',
    ];
  }
  const disks = new Map<string, number>();
  for (const { schedule } of results) {
    const disk = schedule.full === undefined ? '' : `${schedule.full.fileSystem} | ${schedule.full.holds}`;
    disks.set(disk, (disks.get(disk) ?? 0) + 1);
  }
  const rows = [...disks].map(([disk, rounds]) => `| ${disk} | ${rounds} |`);
  return ['| file system | holds | rounds |', '|---|---|---|', ...rows, ''];
}

function read(): string {
  return existsSync(file) ? readFileSync(file, 'utf8') : '';
}

/** A section with its heading, up to the next one; empty if there is none. */
function sectionOf(heading: string): string {
  const text = read();
  const from = text.indexOf(`${heading}\n`);
  if (from === -1) return '';
  const to = text.indexOf('\n## ', from);
  return `${text.slice(from, to === -1 ? undefined : to).trimEnd()}\n`;
}

/** Replaces a section, or adds it at the end. */
function writeSection(heading: string, lines: readonly string[]): void {
  const [text, former, next] = [read(), sectionOf(heading), [heading, '', ...lines].join('\n')];
  const added = `${text.trimEnd()}${text === '' ? '' : '\n\n'}${next}`;
  writeFileSync(file, former === '' ? added : text.replace(former, () => next));
}

/** Writes the table of mutants and keeps what the file says about rounds. */
export function writeMutants(
  rows: readonly { readonly name: string; readonly kinds: readonly string[]; readonly caught: boolean }[],
): void {
  writeSection(mutantsHeading, [
    `Services that break one promise each, by a patch in a copy (\`npm run chaos -- --mutants\`, commit ${readCommit()}).`,
    '',
    '| the service | caught | reported as |',
    '|---|---|---|',
    ...rows.map(({ name, kinds, caught }) => `| ${name} | ${caught ? 'yes' : 'NO'} | ${kinds.join(', ')} |`),
    '',
  ]);
}

function versions(): string {
  const redis = /v=(\S+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' }))?.[1];
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string }>;
  };
  const packages = ['bullmq', 'ioredis', '@clickhouse/client', 'ffi-rs', 'uWebSockets.js'];
  const named = packages.map((name) => `${name} ${lock.packages[`node_modules/${name}`]?.version}`);
  return `Node ${process.version}, redis-server ${redis}, ${named.join(', ')}; Linux ${release()}, ${cpus().length} processors.`;
}

function wrapped(words: readonly string[]): string {
  return words
    .join(' ')
    .replace(/(.{1,110})(?: |$)/g, '$1\n')
    .trimEnd();
}
