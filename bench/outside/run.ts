// `npm run bench -- SCENARIO --url …`: loads a deployment that is already running, without measuring its processes. The network, proxies
// and faults on the way are part of the result: errors are counted and never end a run.

import { query } from '../../test/harness/clickhouse.js';
import { basic } from '../../test/harness/deletion.js';
import { readStored, sumOf, untilCounted } from '../deployment/stored.js';
import { BenchError, messageOf } from '../failure.js';
import { readPayloads } from '../load/bodies.js';
import { countEndings, endings, type MergedSecond } from '../load/second.js';
import { json, prepareLoad, type Sent } from '../load/threads.js';
import type { Progress } from '../progress.js';
import { usualPath } from '../results.js';
import { sluiceWays, type Way } from '../throughput/ways.js';
import { type OutsideOptions, readOutsideOptions } from './options.js';
import { describeOutcome, findMissed, type Outcome, outcomeOf } from './outcome.js';
import { type Found, writeFound } from './page.js';
import { namesIn, removeUsers, usersOf } from './remove.js';
import { resultOf, searchRate, type Tried } from './search.js';

const storedMsMax = 120_000;

const exitCodes = { kept: 0, missed: 1, endedByGenerator: 2 };

/** Runs the scenarios one after another, and settles with the exit code. Throws BenchError for invalid options. */
export async function runOutside(
  names: readonly string[],
  args: readonly string[],
  progress: Progress,
  print: (text: string) => void,
): Promise<number> {
  const options = readOutsideOptions(args);
  const chosen = chooseWays(names, options);
  const payloads = options.payloads === undefined ? undefined : readPayloads(options.payloads);
  const all: Ran[] = [];
  for (const way of chosen) {
    const path = `${options.out ?? usualPath(names.join('+'), false)}${chosen.length > 1 ? `-${way.name}` : ''}`;
    const { seconds, ...ran } = await runWay(way, options, progress);
    await writeFound(path, ran.found, seconds, options, print);
    for (const words of ran.found.missed) progress.say(`${way.name}: MISSED: ${words}`);
    all.push(ran);
  }
  const removed = options.apiKeys.length === 0 || (await remove(options, all, payloads, progress));
  if (!removed || all.some(({ found }) => found.missed.length > 0)) return exitCodes.missed;
  return all.some(({ found }) => found.endedByGenerator) ? exitCodes.endedByGenerator : exitCodes.kept;
}

function chooseWays(names: readonly string[], { payloads }: OutsideOptions): Way[] {
  const known = sluiceWays.map(({ name }) => name);
  const wanted = names.includes('all') || names.includes('ways') ? known : names;
  return wanted.map((name) => {
    const way = sluiceWays.find((candidate) => candidate.name === name);
    if (way === undefined) throw new BenchError(`with --url there are ${known.join(', ')}, not ${name}`);
    if (payloads !== undefined && way.answer === null) {
      throw new BenchError(
        `${name} sends messages of the client library: --payloads is for the other scenarios`,
      );
    }
    return way;
  });
}

/** What a scenario found, and what it sent. */
type Ran = { readonly way: Way; readonly found: Found; readonly sent: Sent };

async function runWay(way: Way, options: OutsideOptions, progress: Progress) {
  const before = await countStored(options);
  const { url, appIds, payloads, gzip, writeKey, seconds, threads, connections = way.connections } = options;
  const headers = {
    ...json,
    ...(gzip && { 'content-encoding': 'gzip' }),
    ...(writeKey && { authorization: basic(appIds[0] ?? '', writeKey) }),
  };
  const all: MergedSecond[] = [];
  const sent: Sent[number][] = [];
  const run = async (rate: number | undefined): Promise<Outcome> => {
    const what = rate === undefined ? way.name : `${way.name} at ${rate}/s`;
    const content = { way: way.name, headers, appIds, payloads, gzip, ownUsers: true };
    const load = await prepareLoad({ url, ...content, connections, rate, seconds, threads });
    const result = await progress.during(what, () => `${load.answers()} answers`, load.send);
    sent.push(...result.sent);
    all.push(...result.seconds);
    const outcome = outcomeOf(result, { rate, seconds });
    progress.say(`${way.name}: ${describeOutcome(outcome)}`);
    return outcome;
  };
  const result = options.searches
    ? await search(way, options, run, progress)
    : await run(options.rate).then((outcome) => ({
        outcome,
        missed: findMissed(outcome, options),
        endedByGenerator: (outcome.endings[endings.unsent] ?? 0) > 0,
      }));
  const { acknowledged, unknown } = countAcknowledged(way, all);
  if (before !== undefined) {
    await checkStored(options, before, acknowledged, unknown).catch((error: unknown) =>
      result.missed.push(messageOf(error)),
    );
  }
  const found: Found = { scenario: way.name, ...result, acknowledged };
  return { way, found, sent, seconds: all };
}

/** Settles with the outcome at the highest rate that keeps the bounds; if no rate does, with that at the lowest rate. */
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
    ? `the generator cannot send more: ${kept} kept the bounds, and the service may carry more. Use more --threads or --connections, or several generators`
    : highest === undefined
      ? 'no rate keeps the bounds'
      : `the highest rate that keeps the bounds is ${kept}`;
  progress.say(`${way.name}: ${words}`);
  const { outcome, rate } = highest ?? (tried[0] as Tried);
  const missed = highest === undefined ? findMissed(outcome, options) : [];
  if (highest === undefined && missed.length === 0 && !endedByGenerator) {
    missed.push(`${rate}/s was not reached, by its limit: ${outcome.limit}`);
  }
  return { tried, endedByGenerator, outcome, missed, highestRate: highest?.rate };
}

/** How many records must be stored, and how many more may be: those of requests whose outcome is unknown. */
function countAcknowledged({ records }: Way, seconds: readonly MergedSecond[]) {
  const each = sumOf(records);
  const { '200': good = 0, ...others } = countEndings(seconds);
  const maybe: readonly string[] = [endings.timeout, endings.connection, endings.refused];
  const unknown = Object.entries(others)
    .filter(([ending]) => /^5/.test(ending) || maybe.includes(ending))
    .reduce((sum, [, count]) => sum + count, 0);
  return { acknowledged: good * each, unknown: unknown * each };
}

/** How many records the environments have; undefined without --clickhouse-url. */
async function countStored({ appIds, clickhouseUrl, database }: OutsideOptions): Promise<number | undefined> {
  if (clickhouseUrl === undefined) return undefined;
  const { origin, username, password } = new URL(clickhouseUrl);
  const user = { name: decodeURIComponent(username) || 'default', password: decodeURIComponent(password) };
  const parameters = new URLSearchParams({ database, default_format: 'JSONEachRow' });
  const rows = async <Row>(sql: string) => {
    const lines = (await query(`${origin}/?${parameters}`, user, sql)).trim().split('\n');
    return lines.map((line) => JSON.parse(line) as Row);
  };
  const stored = await Promise.all(appIds.map((appId) => readStored({ rows }, appId)));
  return stored.reduce((sum, records) => sum + sumOf(records), 0);
}

/** Rejects if fewer records are stored than were acknowledged, or more than can be. */
async function checkStored(options: OutsideOptions, before: number, acknowledged: number, unknown: number) {
  const count = async () => ((await countStored(options)) ?? 0) - before;
  const stored = await untilCounted(count, acknowledged, storedMsMax);
  if (stored > acknowledged + unknown) {
    const words = `the fate of ${unknown} is unknown; ${stored} are stored`;
    throw new BenchError(`${acknowledged} records were acknowledged, and ${words}`);
  }
}

/**
 * Settles with whether the deletion was complete: as many rows were deleted as records were acknowledged and, if the users occur only in
 * this run, no more than were sent.
 */
async function remove(
  options: OutsideOptions,
  all: readonly Ran[],
  payloads: readonly object[] | undefined,
  { say }: Progress,
): Promise<boolean> {
  const users = namesIn(
    payloads ?? all.flatMap(({ way, sent }) => usersOf(way, sent, options.appIds.length)),
  );
  say(`deletes ${users.length} users`);
  const rows = await removeUsers(options, users);
  const acknowledged = all.reduce((sum, { found }) => sum + found.acknowledged, 0);
  say(`the deletions are complete: ${rows} rows`);
  const words = `MISSED: ${acknowledged} records were acknowledged, ${rows} rows are deleted`;
  if (rows < acknowledged) say(`${words}. Give the --api-key of every account`);
  const sent = all.reduce(
    (sum, { way, sent }) => sum + sumOf(way.records) * sent.reduce((of, { requests }) => of + requests, 0),
    0,
  );
  const tooMany = payloads === undefined && rows > sent;
  if (tooMany) say(`MISSED: ${sent} records were sent, ${rows} rows are deleted`);
  return rows >= acknowledged && !tooMany;
}
