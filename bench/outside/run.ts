// `npm run bench -- SCENARIO --url …`: loads a deployment that already runs and does not measure its processes. The network,
// proxies and faults on the way belong to the result: errors are counted and never end a run.

import { queryRows } from '../deployment/deployment.js';
import { readStored, sumOf, untilCounted } from '../deployment/stored.js';
import { BenchError, messageOf } from '../failure.js';
import { figure } from '../figures.js';
import { readPayloads } from '../load/bodies.js';
import { countEndings, endings, type MergedSecond } from '../load/second.js';
import { type LoadResult, runLoad } from '../load/threads.js';
import type { Progress } from '../progress.js';
import { usualPath } from '../results.js';
import { sluiceWays, type Way } from '../throughput/ways.js';
import { type OutsideOptions, readOutsideOptions } from './options.js';
import { findMissed, type Outcome, outcomeOf, percentText } from './outcome.js';
import { type Found, writeFound } from './page.js';
import { namesIn, removeUsers, usersOf } from './remove.js';
import { resultOf, searchRate, type Tried } from './search.js';

const storedMsMax = 120_000;

export const exitCodes = { kept: 0, missed: 1, endedByGenerator: 2 } as const;
type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** Runs the scenarios one after another; settles with the exit code. Throws BenchError for bad options. */
export async function runOutside(
  names: readonly string[],
  args: readonly string[],
  progress: Progress,
  print: (text: string) => void,
): Promise<ExitCode> {
  const options = readOutsideOptions(args);
  const known = sluiceWays.map(({ name }) => name);
  const wanted = names.includes('all') || names.includes('ways') ? known : names;
  const chosen = wanted.map((name) => {
    const way = sluiceWays.find((candidate) => candidate.name === name);
    if (way === undefined) throw new BenchError(`with --url there are ${known.join(', ')}, not ${name}`);
    if (options.payloads !== undefined && way.answer === null) {
      throw new BenchError(
        `${name} sends messages of the client library: --payloads is for the other scenarios`,
      );
    }
    return way;
  });
  const payloads = options.payloads === undefined ? undefined : readPayloads(options.payloads);
  const all: Ran[] = [];
  for (const way of chosen) {
    const path = `${options.out ?? usualPath(names.join('+'), false)}${chosen.length > 1 ? `-${way.name}` : ''}`;
    all.push(await runWay(way, options, path, progress, print));
  }
  const removed = options.apiKeys.length === 0 || (await remove(options, all, payloads, progress));
  if (!removed || all.some(({ found }) => found.missed.length > 0)) return exitCodes.missed;
  return all.some(({ found }) => found.endedByGenerator) ? exitCodes.endedByGenerator : exitCodes.kept;
}

/** What a scenario found, and what it sent. */
type Ran = { readonly way: Way; readonly found: Found; readonly sent: LoadResult['sent'] };

async function runWay(
  way: Way,
  options: OutsideOptions,
  path: string,
  progress: Progress,
  print: (text: string) => void,
): Promise<Ran> {
  const before = await countStored(options);
  const { bounds, url, appIds, payloads, gzip, seconds, threads, connections = way.connections } = options;
  const headers = headersOf(options);
  let all: readonly MergedSecond[] = [];
  let last: readonly MergedSecond[] = [];
  const sent: LoadResult['sent'][number][] = [];
  const run = async (rate: number | undefined): Promise<Outcome> => {
    let answers = 0;
    const what = rate === undefined ? way.name : `${way.name} at ${rate}/s`;
    const watch = progress.watch(what, () => `${answers} answers`);
    try {
      const load = {
        ...{ url, way: way.name, headers, appIds, payloads, gzip },
        ...{ connections, rate, seconds, threads },
      };
      const result = await runLoad(load, (second) => {
        for (const { totalCount } of Object.values(second.endings)) answers += totalCount;
      });
      sent.push(...result.sent);
      last = result.seconds;
      all = [...all, ...last];
      const outcome = outcomeOf(result, load);
      progress.say(`${way.name}: ${describe(outcome)}`);
      return outcome;
    } finally {
      watch.end();
    }
  };
  const result =
    bounds.length > 0 && options.rate === undefined
      ? await search(way, options, run, progress)
      : await run(options.rate).then((outcome) => ({ outcome, missed: findMissed(outcome, options) }));
  const { missed } = result;
  const { acknowledged, unknown } = countAcknowledged(way, all);
  if (before !== undefined) {
    await checkStored(options, before, acknowledged, unknown).catch((error: unknown) =>
      missed.push(messageOf(error)),
    );
  }
  const found: Found = { scenario: way.name, ...result, acknowledged };
  await writeFound(path, found, 'tried' in result ? all : last, options, print);
  for (const words of missed) progress.say(`${way.name}: MISSED: ${words}`);
  return { way, found, sent };
}

/** Settles with the outcome at the highest rate that keeps the bounds; if there is none, at the lowest rate. */
async function search(
  way: Way,
  options: OutsideOptions,
  run: (rate: number) => Promise<Outcome>,
  progress: Progress,
) {
  const tried = await searchRate(options.step, async (rate) => {
    const outcome = await run(rate);
    return { rate, outcome, kept: findMissed(outcome, options).length === 0 && outcome.limit === 'rate' };
  });
  const { highest, endedByGenerator } = resultOf(tried);
  const kept = highest === undefined ? 'no rate' : `${highest.rate}/s`;
  const words = endedByGenerator
    ? `the generator cannot send more: ${kept} kept the bounds, and the service may carry more. Use more --threads or several generators`
    : highest === undefined
      ? 'no rate keeps the bounds'
      : `the highest rate that keeps the bounds is ${kept}`;
  progress.say(`${way.name}: ${words}`);
  const common = { tried, ...(endedByGenerator && { endedByGenerator }) };
  if (highest !== undefined) {
    return { ...common, outcome: highest.outcome, missed: [] as string[], highestRate: highest.rate };
  }
  const { outcome, rate } = tried[0] as Tried;
  const missed = findMissed(outcome, options);
  const notReached = `${rate}/s was not reached, by its limit: ${outcome.limit}`;
  return { ...common, outcome, missed: missed.length > 0 || endedByGenerator ? missed : [notReached] };
}

function headersOf({ appIds, gzip, writeKey }: OutsideOptions): Record<string, string> {
  const credentials = Buffer.from(`${appIds[0]}:${writeKey}`).toString('base64');
  return {
    'content-type': 'application/json',
    ...(gzip && { 'content-encoding': 'gzip' }),
    ...(writeKey && { authorization: `Basic ${credentials}` }),
  };
}

/** Records that must be stored, and those of requests with an unknown fate, which may be. */
function countAcknowledged({ records }: Way, seconds: readonly MergedSecond[]) {
  const each = sumOf(records);
  const { '200': good = 0, ...others } = countEndings(seconds);
  let unknown = 0;
  for (const [ending, count] of Object.entries(others)) {
    const mayBeStored = /^5/.test(ending) || ending in { timeout: 1, connection: 1, [endings.refused]: 1 };
    if (mayBeStored) unknown += count;
  }
  return { acknowledged: good * each, unknown: unknown * each };
}

/** All records of the environments; undefined without --clickhouse-url. */
async function countStored(options: OutsideOptions): Promise<number | undefined> {
  const { appIds, clickhouseUrl, database } = options;
  if (clickhouseUrl === undefined) return undefined;
  const rows = <Row>(sql: string) => queryRows<Row>(clickhouseUrl, database, sql);
  const stored = await Promise.all(appIds.map((appId) => readStored({ rows }, appId)));
  return stored.reduce((sum, records) => sum + sumOf(records), 0);
}

/** Rejects if fewer records are stored than were acknowledged, or more than can be. */
async function checkStored(
  options: OutsideOptions,
  before: number,
  acknowledged: number,
  unknown: number,
): Promise<void> {
  const count = async () => ((await countStored(options)) ?? 0) - before;
  const stored = await untilCounted(count, acknowledged, storedMsMax);
  if (stored > acknowledged + unknown) {
    const words = `the fate of ${unknown} is unknown; ${stored} are stored`;
    throw new BenchError(`${acknowledged} records were acknowledged, and ${words}`);
  }
}

/** Settles with whether as many rows were deleted as records were acknowledged. */
async function remove(
  options: OutsideOptions,
  all: readonly Ran[],
  payloads: readonly object[] | undefined,
  progress: Progress,
): Promise<boolean> {
  const users =
    payloads === undefined
      ? all.flatMap(({ way, sent }) => usersOf(way, sent, options.appIds.length))
      : namesIn(payloads);
  const different = [...new Map(users.map((user) => [JSON.stringify(user), user])).values()];
  progress.say(`deletes ${different.length} users`);
  const rows = await removeUsers(options, different);
  const acknowledged = all.reduce((sum, { found }) => sum + found.acknowledged, 0);
  progress.say(`the deletions are complete: ${rows} rows`);
  if (rows >= acknowledged) return true;
  progress.say(
    `MISSED: ${acknowledged} records were acknowledged, ${rows} rows are deleted. Give the --api-key of every account`,
  );
  return false;
}

function describe({ perSecond, errors, latencyMs, limit, endings: counted }: Outcome): string {
  const latency = Object.entries(latencyMs).map(([name, ms]) => `${name} ${figure(ms)}`);
  const unsent = counted[endings.unsent] ?? 0;
  return [
    `${figure(perSecond)} requests/s`,
    `${latency.join(', ')} ms`,
    `errors ${percentText(errors)}`,
    ...(unsent > 0 ? [`${unsent} were due but not sent, because no connection was free`] : []),
    `limit: ${limit}`,
  ].join('; ');
}
