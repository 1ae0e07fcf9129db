// How long do the requests of a privacy officer take on a large table? The export of a user with millions of events, the submission and the
// preview of a deletion, the polling of a status. Also: what do suppressed users cost the events of all others?

import { setTimeout as pause } from 'node:timers/promises';
import type { Context } from '../context.js';
import { connectDeletionApi } from '../deletion/api.js';
import { Population, type User } from '../deletion/population.js';
import { mergesEnded } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { figure } from '../figures.js';
import { type ExportRun, exportedUser, fillUser, runExport } from './export.js';
import { measureSuppressed } from './suppressed.js';

const submissions = 20;
const polls = 100;
/** Keeps polls below the number that a token is allowed per second. */
const pollEveryMs = 20;
const suppressedUsers = 1_000_000;
const previewedUsers = 1_000;
const eventsStep = 10_000;
/** A set without those customers of whom some events became those of loners. */
const setOfPreviews = 40;

export async function runDesk(context: Context) {
  const { deployment, options, progress } = context;
  const suppressed = measureSuppressed(suppressedUsers);
  progress.say(`desk: an event beside ${figure(suppressedUsers)} suppressed users is measured`);
  const api = await connectDeletionApi(deployment);
  const population = new Population(deployment, api.appIds, options.deskOthers);
  const inSteps = (events: number) => Math.ceil(events / eventsStep) * eventsStep;
  const events = inSteps(options.deskEvents);
  const othersEvents = inSteps(options.deskOthers);
  await population.fill(othersEvents);
  await fillUser(deployment, api.appIds[0], events);
  await mergesEnded(deployment);
  progress.say(`desk: ${figure(events)} events of one user, and ${figure(othersEvents)} of others`);
  /** Runs with and without gzip, in turns. */
  const exports: ExportRun[] = [];
  for (let repeat = 0; repeat < options.repeats; repeat += 1) {
    for (const gzip of [false, true]) {
      const run = await runExport(deployment, api.accessToken, events, gzip);
      exports.push(run);
      const [first, end] = [figure(run.firstByteSeconds), figure(run.seconds)];
      progress.say(`desk: export${gzip ? ' as gzip' : ''}: first byte after ${first} s, end after ${end} s`);
    }
  }
  const preview = async (what: string, users: readonly User[]) => {
    /** The number of rows that the preview found. */
    let rows = 0;
    const ms = await timed(options.repeats, async () => {
      rows = await api.preview(users);
    });
    if (rows === 0) throw new BenchError(`the preview found no row of ${what}`);
    return { what, users: users.length, rows, ms };
  };
  const named = population
    .customersOfSet(setOfPreviews, previewedUsers)
    .map((customer) => population.nameOf(customer));
  const previews = [
    await preview('a user like others', named.slice(0, 1)),
    await preview('the exported user', [{ identity: exportedUser }]),
    await preview('many users', named),
  ];
  let requestId = '';
  /** The ms until the answer to each submission of one user, and to each status request. */
  const submittedMs = await timed(submissions, async (i) => {
    requestId = await api.submit([{ identity: `nobody-${i}@example.com` }]);
  });
  const polledMs = await timed(polls, () => api.isComplete(requestId), pollEveryMs);
  return { events, othersEvents, exports, submittedMs, previews, polledMs, suppressed };
}

/** Makes calls one after another, and settles with how many ms each took. */
async function timed(count: number, call: (index: number) => Promise<unknown>, everyMs = 0) {
  const ms: number[] = [];
  for (let index = 0; index < count; index += 1) {
    await pause(everyMs);
    const startedAt = performance.now();
    await call(index);
    ms.push(performance.now() - startedAt);
  }
  return ms;
}
