// What does an event cost, and how long does it take, when none, one or two replicas of Redis have to have it on disk? Three deployments
// stand side by side and take turns at the same rates; all their servers of Redis count. Then the primary of one is killed again and
// again: how long until records are accepted?

import type { Context } from '../context.js';
import { type Deployment, startDeployment } from '../deployment/deployment.js';
import { BenchError } from '../failure.js';
import { describeMachine } from '../machine.js';
import { wholeTable } from './flat.js';
import { runWay } from './throughput.js';
import { type Level, levelsInTurns } from './turns.js';

export type ReplicasResult = {
  /** Levels by how many replicas have to confirm an event, for each rate. */
  readonly rates: readonly { readonly perSecond: number; readonly levels: readonly Level[] }[];
  /** How long after each kill of the primary the first record was accepted that was sent after it. */
  readonly takeOversMs: readonly number[];
};

const acknowledgements = [0, 1, 2];
/** At the lower rate nearly each event is a commit of its own, at the higher one several share one. */
const rates = [600, 1_200];
const moreRounds = 3;
const takeOversMax = 20;
const takeOversOfRepeat = 7;
const takeOverMsMax = 60_000;

export async function runReplicas(context: Pick<Context, 'options' | 'progress'>) {
  const { options, progress } = context;
  const found: { of: number; deployment: Deployment; appIds: string[] }[] = [];
  try {
    for (const of of acknowledgements) {
      const deployment = await startDeployment({ ...options, replicasAck: of });
      found.push({ of, deployment, appIds: await deployment.addEnvironments(1, 'none') });
    }
    const levels: ReplicasResult['rates'][number][] = [];
    for (const perSecond of options.rate === undefined ? rates : [options.rate]) {
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
      levels.push({ perSecond, levels: await levelsInTurns(turns, progress) });
    }
    const takeOversMs: number[] = [];
    const one = found.find(({ of }) => of === 1);
    const takeOvers = Math.min(takeOversMax, takeOversOfRepeat * options.repeats);
    while (one !== undefined && takeOversMs.length < takeOvers) {
      takeOversMs.push(await killPrimary(one.deployment, one.appIds[0] ?? ''));
      progress.say(`take-over ${takeOversMs.length}: ${Math.round(takeOversMs.at(-1) ?? 0)} ms`);
    }
    const replicas: ReplicasResult = { rates: levels, takeOversMs };
    return { machine: await describeMachine(found[0]?.deployment.sluice), replicas };
  } finally {
    for (const { deployment } of found) await deployment.stop();
  }
}

/** Settles with the ms until an event is accepted, after the killed server has come back. */
async function killPrimary({ replicated, url }: Deployment, appId: string): Promise<number> {
  const primary = await replicated?.primary();
  if (primary === undefined) throw new BenchError('there is no primary to kill');
  await primary.kill9();
  const killedMs = performance.now();
  const body = JSON.stringify({ app_id: appId, identity: 'bench', event: 'Take-over' });
  const send = () =>
    fetch(`${url}/api/track`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body }).then(
      (reply) => reply.arrayBuffer().then(() => reply.status === 200),
      () => false,
    );
  while (!(await send()))
    if (performance.now() > killedMs + takeOverMsMax)
      throw new BenchError(`no event was accepted for ${takeOverMsMax} ms after the primary was killed`);
  const tookMs = performance.now() - killedMs;
  await primary.restart();
  await replicated?.untilReplicated(2);
  return tookMs;
}
