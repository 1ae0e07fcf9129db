// `npm run bench -- SCENARIO --url …`: a load on a deployment that runs already, whose processes are not measured. The
// network, proxies and faults on the way are part of what is found: errors are counted, never the end of a run.

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, relative } from 'node:path';
import { queryRows } from '../deployment/deployment.js';
import { readStored, sumOf } from '../deployment/stored.js';
import { BenchError, messageOf } from '../failure.js';
import { figure, markdownTable, tableOf, textTable } from '../figures.js';
import { readPayloads } from '../load/bodies.js';
import { endings, type MergedSecond } from '../load/second.js';
import { runLoad } from '../load/threads.js';
import type { Progress } from '../progress.js';
import { usualPath } from '../results.js';
import { sluiceWays, type Way } from '../throughput/ways.js';
import { csvOf, histogramLog, prometheusText } from './files.js';
import { type OutsideOptions, readOutsideOptions } from './options.js';
import { findMissed, latencyOf, type Outcome, outcomeOf, percentiles, percentText } from './outcome.js';
import { drawKnee, drawSeconds } from './plots.js';
import { madeUsers, removeUsers, usersIn } from './remove.js';
import { highestKept, searchRate, type Tried } from './search.js';

/** What was found of one scenario. */
type Found = {
  readonly scenario: string;
  readonly outcome: Outcome;
  /** Of a search: all rates, and the highest one that kept the bounds. */
  readonly tried?: readonly Tried[];
  readonly highestRate?: number;
  readonly acknowledged: number;
  /** What was not kept, in words. */
  readonly missed: readonly string[];
};

const storedMsMax = 120_000;
const lookEveryMs = 500;

/** Runs the scenarios one after another. Settles with whether all was kept; throws BenchError for bad options. */
export async function runOutside(
  names: readonly string[],
  args: readonly string[],
  progress: Progress,
  print: (text: string) => void,
): Promise<boolean> {
  const options = readOutsideOptions(args);
  const wanted = names.includes('all') || names.includes('ways') ? sluiceWays.map(({ name }) => name) : names;
  const chosen = wanted.map((name) => {
    const way = sluiceWays.find((candidate) => candidate.name === name);
    if (way === undefined) {
      throw new BenchError(
        `with --url there are ${sluiceWays.map(({ name: known }) => known).join(', ')}, not ${name}`,
      );
    }
    return way;
  });
  if (options.payloads !== undefined) readPayloads(options.payloads);
  const all: Found[] = [];
  for (const way of chosen) {
    const path = `${options.out ?? usualPath(names.join('+'), false)}${chosen.length > 1 ? `-${way.name}` : ''}`;
    all.push(await runWay(way, options, path, progress, print));
  }
  if (options.apiKey !== undefined) await remove(options, options.apiKey, all, progress);
  return all.every(({ missed }) => missed.length === 0);
}

async function runWay(
  way: Way,
  options: OutsideOptions,
  path: string,
  progress: Progress,
  print: (text: string) => void,
): Promise<Found> {
  const before = await countStored(options);
  let all: readonly MergedSecond[] = [];
  let last: readonly MergedSecond[] = [];
  const run = async (rate: number | undefined): Promise<Outcome> => {
    let answers = 0;
    const watch = progress.watch(
      rate === undefined ? way.name : `${way.name} at ${rate}/s`,
      () => `${answers} answers`,
    );
    try {
      const load = {
        url: options.url,
        way: way.name,
        headers: headersOf(options),
        appIds: options.appIds,
        payloads: options.payloads,
        gzip: options.gzip,
        connections: options.connections ?? way.connections,
        rate,
        seconds: options.seconds,
        threads: options.threads,
      };
      const result = await runLoad(load, (second) => {
        for (const count of Object.values(second.endings)) answers += count;
      });
      last = result.seconds;
      all = [...all, ...last];
      const outcome = outcomeOf(result, load);
      progress.say(`${way.name}: ${describe(outcome)}`);
      return outcome;
    } finally {
      watch.end();
    }
  };

  const kept = (outcome: Outcome) => findMissed(outcome, options);
  let tried: Tried[] | undefined;
  let outcome: Outcome;
  let missed: string[];
  if (options.bounds.length > 0 && options.rate === undefined) {
    tried = await searchRate(options.step, async (rate) => {
      const found = await run(rate);
      return { rate, outcome: found, kept: kept(found).length === 0 && found.limit === 'service' };
    });
    const highest = highestKept(tried);
    outcome = (highest ?? (tried[0] as Tried)).outcome;
    missed = highest === undefined ? kept(outcome) : [];
    if (highest === undefined && missed.length === 0)
      missed = ['the generator could not send the lowest rate'];
    progress.say(
      highest === undefined
        ? `${way.name}: no rate keeps the bounds`
        : `${way.name}: the highest rate that keeps the bounds is ${highest.rate}/s`,
    );
  } else {
    outcome = await run(options.rate);
    missed = kept(outcome);
  }
  const { acknowledged, unknown } = countAcknowledged(way, all);
  if (before !== undefined) {
    await checkStored(options, before, acknowledged, unknown).catch((error: unknown) =>
      missed.push(messageOf(error)),
    );
  }
  const highestRate = tried && highestKept(tried)?.rate;
  const found: Found = {
    scenario: way.name,
    outcome,
    ...(tried === undefined ? {} : { tried }),
    ...(highestRate === undefined ? {} : { highestRate }),
    acknowledged,
    missed,
  };
  await writeFound(path, found, tried === undefined ? last : all, options, print);
  for (const words of missed) progress.say(`${way.name}: MISSED: ${words}`);
  return found;
}

function headersOf({ appIds, gzip, writeKey }: OutsideOptions): Record<string, string> {
  const credentials = Buffer.from(`${appIds[0]}:${writeKey}`).toString('base64');
  return {
    'content-type': 'application/json',
    ...(gzip ? { 'content-encoding': 'gzip' } : {}),
    ...(writeKey === undefined ? {} : { authorization: `Basic ${credentials}` }),
  };
}

/** Records that must be stored, and those that may be: of requests whose fate nobody knows. */
function countAcknowledged(
  { records }: Way,
  seconds: readonly MergedSecond[],
): { acknowledged: number; unknown: number } {
  const each = sumOf(records);
  let good = 0;
  let unknown = 0;
  for (const { endings: counted } of seconds) {
    good += counted['200'] ?? 0;
    for (const [ending, count] of Object.entries(counted)) {
      const mayBeStored = /^5/.test(ending) || ending in { timeout: 1, connection: 1, [endings.refused]: 1 };
      if (mayBeStored) unknown += count;
    }
  }
  return { acknowledged: good * each, unknown: unknown * each };
}

/** Records of the environments; undefined: there is no ClickHouse to ask. */
async function countStored(options: OutsideOptions): Promise<number | undefined> {
  const { appIds, clickhouseUrl, database } = options;
  if (clickhouseUrl === undefined) return undefined;
  const rows = <Row>(sql: string) => queryRows<Row>(clickhouseUrl, database, sql);
  const stored = await Promise.all(appIds.map((appId) => readStored({ rows }, appId)));
  return stored.reduce((sum, { ids: _, ...records }) => sum + sumOf(records), 0);
}

/** Rejects if less is stored than was acknowledged, or more than may be. */
async function checkStored(
  options: OutsideOptions,
  before: number,
  acknowledged: number,
  unknown: number,
): Promise<void> {
  const endsAt = performance.now() + storedMsMax;
  let stored = ((await countStored(options)) ?? 0) - before;
  while (stored < acknowledged && performance.now() < endsAt) {
    await new Promise((settle) => setTimeout(settle, lookEveryMs));
    stored = ((await countStored(options)) ?? 0) - before;
  }
  if (stored < acknowledged || stored > acknowledged + unknown) {
    throw new BenchError(
      `${acknowledged} records were acknowledged, and the fate of ${unknown} is unknown; ${stored} are stored`,
    );
  }
}

async function remove(
  options: OutsideOptions,
  apiKey: string,
  all: readonly Found[],
  progress: Progress,
): Promise<void> {
  const sent = all.reduce((sum, { acknowledged, outcome }) => sum + acknowledged + outcome.requests, 0);
  const users = options.payloads === undefined ? madeUsers(sent) : usersIn(readPayloads(options.payloads));
  progress.say(`deletes ${users.length} users`);
  const requests = await removeUsers({ url: options.url, appId: options.appIds[0] ?? '', apiKey }, users);
  progress.say(`${requests} deletions are complete`);
}

function describe({ perSecond, errors, latencyMs, limit, endings: counted }: Outcome): string {
  const latency = Object.entries(latencyMs).map(([name, ms]) => `${name} ${figure(ms)}`);
  const unsent = counted[endings.unsent] ?? 0;
  return [
    `${figure(perSecond)} requests/s`,
    `${latency.join(', ')} ms`,
    `errors ${percentText(errors)}`,
    ...(unsent > 0 ? [`${unsent} were due and not sent, for want of a free connection`] : []),
    ...(limit === 'generator' ? ['the generator was the limit'] : []),
  ].join('; ');
}

async function writeFound(
  path: string,
  found: Found,
  seconds: readonly MergedSecond[],
  options: OutsideOptions,
  print: (text: string) => void,
): Promise<void> {
  mkdirSync(dirname(path), { recursive: true });
  const { apiKey: _key, writeKey: _writeKey, clickhouseUrl: _url, ...told } = options;
  const plots: Record<string, string> = { seconds: await drawSeconds(seconds) };
  if (found.tried !== undefined) plots.knee = await drawKnee(found.tried, options.bounds);
  const series = seconds.map(({ atMs, endings: counted, latencies }) => ({
    atMs,
    endings: counted,
    latencyMs: latencyOf(latencies),
  }));
  writeFileSync(
    `${path}.json`,
    `${JSON.stringify({ format: 'load-1', options: told, ...found, series }, null, 1)}\n`,
  );
  writeFileSync(`${path}.hlog`, histogramLog(seconds));
  writeFileSync(`${path}.csv`, csvOf(seconds));
  writeFileSync(`${path}.prom`, prometheusText(found.scenario, found.outcome, seconds));
  for (const [name, svg] of Object.entries(plots)) writeFileSync(`${path}-${name}.svg`, svg);
  const base = path.replace(/^.*\//, '');
  const images = Object.keys(plots).map((name) => `![${name}](${base}-${name}.svg)`);
  const table = tableOfFound(found);
  const notes = found.missed.map((words) => `- missed: ${words}`);
  writeFileSync(
    `${path}.md`,
    `# ${found.scenario}, on a deployment that runs already\n\n${markdownTable(table)}\n\n${[...notes, ...images].join('\n')}\n`,
  );
  print(
    `\n${textTable(table)}\n\nwritten: ${relative(process.cwd(), path)}.json, .md, .hlog, .csv and .prom\n`,
  );
}

function tableOfFound({ scenario, outcome, tried }: Found) {
  const rows: Partial<Tried>[] = tried
    ? [...tried]
    : [{ ...(outcome.rate && { rate: outcome.rate }), outcome }];
  const latency = (name: keyof typeof percentiles) => (row: Partial<Tried>) => row.outcome?.latencyMs[name];
  return tableOf(rows, [
    [scenario, ({ kept }) => (kept === undefined ? '' : kept ? 'kept' : 'not kept')],
    ['asked for/s', ({ rate }) => rate],
    ['answers/s', (row) => row.outcome?.perSecond],
    ...Object.keys(percentiles).map((name) => [name, latency(name as keyof typeof percentiles)] as const),
    ['errors', (row) => percentText(row.outcome?.errors ?? 0)],
    ['limit', (row) => row.outcome?.limit],
  ]);
}
