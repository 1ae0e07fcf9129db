// What does an event cost, and how long does it take, if none, one or two replicas of Redis must have it on disk? Three deployments take
// turns at the same rates; the CPU of all their Redis servers counts. Then the primary of one deployment is killed several times, to measure
// how long it takes until records are accepted again.

import { isAccepted, paths, post } from '../../test/harness/ingestion.js';
import type { Context } from '../context.js';
import type { Deployment } from '../deployment/deployment.js';
import { BenchError } from '../failure.js';
import { median } from '../figures.js';
import { type Level, levelsAtRate, type WithEnvironments, withEnvironments } from './turns.js';

const acknowledgements = [0, 1, 2];
/** At this rate nearly every event is a commit of its own. */
const lowRate = 600;
/** These count as half and full load: at the highest rate itself, the latency would be that of a queue. */
const sharesOfHighest = [0.4, 0.8];
const takeOversMax = 20;
const takeOversOfRepeat = 7;
const takeOverMsMax = 60_000;

export const replicasDeployments = () => acknowledgements.map((replicasAck) => ({ replicasAck }));

export async function runReplicas(context: Context) {
  const { options, progress } = context;
  const found = await withEnvironments(context, acknowledgements, 1);
  /** The rate of the deployment with the most confirmations, as fast as it answered. The higher rates are shares of it. */
  const highestPerSecond = options.rate === undefined ? await highestOf(context, found.slice(-1)) : undefined;
  /** For each rate, levels by how many replicas must confirm an event. */
  const rates: { perSecond: number; levels: readonly Level[] }[] = [];
  for (const perSecond of highestPerSecond ? ratesBelow(highestPerSecond) : [options.rate ?? lowRate]) {
    const nameOf = (of: number) => `replicas ${perSecond}/s, ${of} acknowledgements`;
    rates.push({ perSecond, levels: await levelsAtRate(context, found, 'single', perSecond, nameOf) });
  }
  /** For each kill of the primary, how long it took until a record that was sent after it was accepted. */
  const takeOversMs: number[] = [];
  const one = found.find(({ of }) => of === 1);
  const takeOvers = Math.min(takeOversMax, takeOversOfRepeat * options.repeats);
  while (one !== undefined && takeOversMs.length < takeOvers) {
    takeOversMs.push(await killPrimary(one.deployment, one.appIds[0] ?? ''));
    progress.say(`take-over ${takeOversMs.length}: ${Math.round(takeOversMs.at(-1) ?? 0)} ms`);
  }
  return { rates, highestPerSecond, takeOversMs };
}

async function highestOf(context: Context, most: readonly WithEnvironments[]): Promise<number> {
  const nameOf = (of: number) => `replicas as fast as answered, ${of} acknowledgements`;
  const [level] = await levelsAtRate(context, most, 'single', undefined, nameOf, context.options.repeats);
  return median((level?.runs ?? []).map(({ requestsPerSecond }) => requestsPerSecond));
}

function ratesBelow(highest: number): readonly number[] {
  return [lowRate, ...sharesOfHighest.map((share) => Math.round((share * highest) / 100) * 100)];
}

/** Kills the primary; settles with the ms until an event was accepted, once the killed server is back as a replica. */
async function killPrimary({ replicated, url }: Deployment, appId: string): Promise<number> {
  const primary = await replicated?.primary();
  if (primary === undefined) throw new BenchError('there is no primary to kill');
  await primary.kill9();
  const killedMs = performance.now();
  const event = { app_id: appId, identity: 'bench', event: 'Take-over' };
  const send = () => post(url, paths.track, event).then(isAccepted, () => false);
  while (!(await send()))
    if (performance.now() > killedMs + takeOverMsMax)
      throw new BenchError(`no event was accepted for ${takeOverMsMax} ms after the primary was killed`);
  const tookMs = performance.now() - killedMs;
  await primary.restart();
  await replicated?.untilReplicated(2);
  return tookMs;
}
