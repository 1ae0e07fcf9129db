// What do deletion requests cost that never stop, and how does that grow with the tables? For each table size, events arrive at a constant
// rate for some minutes, with a deletion request for one user every ten seconds; with the largest tables also without requests, and with
// requests for ten users. At the end no query may show a row of the named users.

import { setTimeout as pause } from 'node:timers/promises';
import { readConfig } from '../../src/config.js';
import { registryKeys } from '../../src/redis/keys.js';
import { erasures } from '../../src/tuning.js';
import type { Context } from '../context.js';
import { prepareIngestion } from '../deployment/ingestion.js';
import { perRecord, startMeter } from '../deployment/meter.js';
import { mergesEnded, numberOf } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { figure, median } from '../figures.js';
import { spreadOf } from '../load/histogram.js';
import { latenciesOf } from '../load/second.js';
import { addEnvironment, connectDeletionApi, type DeletionApi } from './api.js';
import { Population, type User } from './population.js';

const requestEveryMs = 10_000;
/** Requests that have waited longer are polled less often: otherwise many of them would exceed the token's limit. */
const poll = { everyMs: 100, shareOfWait: 0.05 };
/** The numbers of users per request; 0 means no requests. */
const usersAtMostEvents = [0, 1, 10];
const usersAtFewerEvents = [1];
const usualRatePerSecond = 2_000;
/** The run fails if the users of a request are not hidden after this. */
const hiddenSecondsMax = 600;

export async function runStream(context: Context) {
  const { deployment, options, progress } = context;
  const { rate: ratePerSecond = usualRatePerSecond, streamMinutes: minutes } = options;
  const api = await connectDeletionApi(deployment);
  const sizes = [...options.streamEvents].sort((a, b) => a - b);
  const most = sizes.at(-1) as number;
  const population = new Population(deployment, api.appIds, most);
  const runs: Awaited<ReturnType<typeof runOne>>[] = [];
  for (const events of sizes) {
    // Only new customers have events in many parts: those of earlier customers lie in the oldest parts.
    const firstCustomer = population.customers;
    await population.fill(events);
    await mergesEnded(deployment);
    progress.say(`${events} events of ${population.customers} customers`);
    for (const usersOfRequest of events === most ? usersAtMostEvents : usersAtFewerEvents) {
      const requests = usersOfRequest === 0 ? 0 : Math.floor((minutes * 60_000) / requestEveryMs);
      const customers = population
        .customersOfSet(runs.length)
        .filter((customer) => customer >= firstCustomer)
        .slice(0, requests * usersOfRequest);
      if (customers.length < requests * usersOfRequest)
        throw new BenchError(`${population.customers} customers are too few for ${minutes} minutes`);
      const users = customers.map((customer) => population.nameOf(customer));
      const run = await runOne(context, api, users, { events, usersOfRequest });
      runs.push(run);
      progress.say(
        `${usersOfRequest} users a request: hidden after ${figure(run.hiddenMs?.p99)} ms, acknowledged after ${figure(run.acknowledgedMs.p99)} ms (p99)`,
      );
    }
  }
  return { ratePerSecond, minutes, runs };
}

async function runOne(
  { deployment, options }: Context,
  api: DeletionApi,
  users: readonly User[],
  { events, usersOfRequest }: { readonly events: number; readonly usersOfRequest: number },
) {
  const { rate = usualRatePerSecond, streamMinutes, threads } = options;
  const appId = await addEnvironment(deployment.sluice, `stream ${events} ${usersOfRequest}`);
  const ingestion = await prepareIngestion(deployment, appId, rate, threads);
  await useUpAdvance(deployment);
  const rewrittenBefore = await rewrittenBytes(deployment);
  const read = startMeter(deployment.cpu);
  ingestion.begin();
  const startedAt = performance.now();
  const hidden: Promise<number>[] = [];
  for (let at = 0; at < users.length; at += usersOfRequest) {
    await pause(Math.max(0, startedAt + hidden.length * requestEveryMs - performance.now()));
    hidden.push(msUntilHidden(api, users.slice(at, at + usersOfRequest)));
    // Awaited at the end; until then a rejection must not count as unhandled.
    hidden.at(-1)?.catch(() => undefined);
  }
  await pause(Math.max(0, startedAt + streamMinutes * 60_000 - performance.now()));
  const found = await Promise.all(hidden);
  const { used, seconds, othersShare } = read();
  const rewritten = (await rewrittenBytes(deployment)) - rewrittenBefore;
  const { seconds: answered } = await ingestion.end();
  const shown = await rowsShown(deployment, users);
  if (shown > 0) throw new BenchError(`${shown} rows of hidden users are shown`);
  return {
    /** How many events were stored before. */
    events,
    usersOfRequest,
    requests: found.length,
    hiddenMs: found.length === 0 ? undefined : spread(found),
    acknowledgedMs: spreadOf(latenciesOf(answered)),
    /** The CPU of each kind of process, in cores. */
    cores: perRecord(used, seconds * 1e6),
    othersShare: othersShare(),
    /** How many bytes mutations read to rewrite parts, divided by the size of the tables; both uncompressed. */
    rewrittenTimes: rewritten / (await numberOf(deployment, 'sum(data_uncompressed_bytes)', activeParts)),
    parts: await numberOf(deployment, 'count()', activeParts),
    mutationsUndone: await numberOf(
      deployment,
      'count()',
      `system.mutations WHERE ${ofEvents} AND NOT is_done`,
    ),
  };
}

/** Where tables are small, erasing may use minutes of CPU in advance; where requests never stop, that is used up. */
async function useUpAdvance(deployment: Context['deployment']): Promise<void> {
  const { atOnceBytesMax, cpuShare } = readConfig({}).erasure;
  const from = 'system.parts WHERE active AND database = currentDatabase()';
  if ((await numberOf(deployment, 'sum(bytes_on_disk)', from)) > atOnceBytesMax) return;
  await deployment.redis.set(registryKeys.erasureRest, '1', 'PX', erasures.advanceCpuMs / cpuShare);
}

const ofEvents = "database = currentDatabase() AND table = 'stored_events'";
const activeParts = `system.parts WHERE ${ofEvents} AND active`;

/** From the submission until the status first says that queries no longer show the users. */
async function msUntilHidden(api: DeletionApi, users: readonly User[]): Promise<number> {
  const sentAt = performance.now();
  const id = await api.submit(users);
  while (!(await api.isHidden(id))) {
    const waitedMs = performance.now() - sentAt;
    if (waitedMs > hiddenSecondsMax * 1_000)
      throw new BenchError(`a request is not hidden after ${hiddenSecondsMax} s`);
    await pause(Math.max(poll.everyMs, poll.shareOfWait * waitedMs));
  }
  return performance.now() - sentAt;
}

function spread(values: readonly number[]) {
  const sorted = [...values].sort((a, b) => a - b);
  const p99 = sorted[Math.ceil(0.99 * sorted.length) - 1];
  return { p50: median(sorted), p99 };
}

function rewrittenBytes(deployment: Context['deployment']): Promise<number> {
  return numberOf(deployment, 'sum(value)', "system.events WHERE event = 'MutatedUncompressedBytes'");
}

/** How many rows queries show of the users, under the names by which they were deleted. */
async function rowsShown(deployment: Context['deployment'], users: readonly User[]): Promise<number> {
  if (users.length === 0) return 0;
  const list = (values: readonly string[]) => values.map((value) => `'${value}'`).join(', ') || "''";
  const identities = users.flatMap((user) => ('identity' in user ? [user.identity] : []));
  const userIds = users.flatMap((user) => ('user_id' in user ? [String(user.user_id)] : []));
  return numberOf(
    deployment,
    'count()',
    `stored_events WHERE app_id != '' AND (identity IN (${list(identities)}) OR toString(user_id) IN (${list(userIds)}))`,
  );
}
