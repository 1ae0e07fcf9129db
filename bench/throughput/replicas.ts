// What does an event cost, and how long does it take, if none, one or two replicas of Redis must have it on disk? Three deployments take
// turns at the same rates; the CPU of all their Redis servers counts. Then the primary of one deployment is killed several times, to measure
// how long it takes until records are accepted again.

import { isAccepted, paths, post } from '../../test/harness/ingestion.js';
import type { Context } from '../context.js';
import { type Deployment, startDeployment } from '../deployment/deployment.js';
import { BenchError } from '../failure.js';
import { median } from '../figures.js';
import { describeMachine } from '../machine.js';
import { wholeTable } from './flat.js';
import { runWay } from './throughput.js';
import { type Level, levelsInTurns } from './turns.js';

export type ReplicasResult = Awaited<ReturnType<typeof runReplicas>>['replicas'];

const acknowledgements = [0, 1, 2];
/** At this rate nearly every event is a commit of its own. */
const lowRate = 600;
/** These count as half and full load: at the highest rate itself, the latency would be that of a queue. */
const sharesOfHighest = [0.4, 0.8];
const moreRounds = 3;
const takeOversMax = 20;
const takeOversOfRepeat = 7;
const takeOverMsMax = 60_000;

type Found = { readonly of: number; readonly deployment: Deployment; readonly appIds: readonly string[] };

export async function runReplicas(context: Pick<Context, 'options' | 'progress'>) {
  const { options, progress } = context;
  const found: Found[] = [];
  try {
    for (const of of acknowledgements) {
      const deployment = await startDeployment({ ...options, replicasAck: of });
      found.push({ of, deployment, appIds: await deployment.addEnvironments(1, 'none') });
    }
    /** The rate of the deployment with the most confirmations, as fast as it answered. The higher rates are shares of it. */
    const highestPerSecond = options.rate === undefined ? await highestOf(context, found.at(-1)) : undefined;
    /** For each rate, levels by how many replicas must confirm an event. */
    const rates: { perSecond: number; levels: readonly Level[] }[] = [];
    for (const perSecond of highestPerSecond ? ratesBelow(highestPerSecond) : [options.rate ?? lowRate]) {
      const turns = found.map(({ of, deployment, appIds }) => ({
        of,
        name: `replicas ${perSecond}/s, ${of} acknowledgements`,
        rounds: moreRounds * options.repeats,
        run: () =>
          runWay({ ...context, deployment }, 'single', {
            rate: perSecond,
            subject: wholeTable(deployment),
            appIds,
          }),
      }));
      rates.push({ perSecond, levels: await levelsInTurns(turns, progress) });
    }
    /** For each kill of the primary, how long it took until a record that was sent after it was accepted. */
    const takeOversMs: number[] = [];
    const one = found.find(({ of }) => of === 1);
    const takeOvers = Math.min(takeOversMax, takeOversOfRepeat * options.repeats);
    while (one !== undefined && takeOversMs.length < takeOvers) {
      takeOversMs.push(await killPrimary(one.deployment, one.appIds[0] ?? ''));
      progress.say(`take-over ${takeOversMs.length}: ${Math.round(takeOversMs.at(-1) ?? 0)} ms`);
    }
    return {
      machine: await describeMachine(found[0]?.deployment.sluice),
      replicas: { rates, highestPerSecond, takeOversMs },
    };
  } finally {
    for (const { deployment } of found) await deployment.stop();
  }
}

async function highestOf(
  context: Pick<Context, 'options' | 'progress'>,
  most: Found | undefined,
): Promise<number | undefined> {
  if (most === undefined) return undefined;
  const { of, deployment, appIds } = most;
  const run = () => runWay({ ...context, deployment }, 'single', { subject: wholeTable(deployment), appIds });
  const name = `replicas as fast as answered, ${of} acknowledgements`;
  const [level] = await levelsInTurns([{ of, name, rounds: context.options.repeats, run }], context.progress);
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
