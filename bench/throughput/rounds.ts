// Runs the service's ways, the floors and the peers in turns. A way that fails is not repeated; the others continue.

import type { Context } from '../context.js';
import { numberOf } from '../deployment/stored.js';
import { runEngine } from '../peers/engine.js';
import { runWay, type ThroughputRun } from './throughput.js';
import { inTurns } from './turns.js';
import { engineFloor, peerWays, sluiceWays, type Way } from './ways.js';

const warmUpSeconds = { first: 2, later: 0.5 };
/** Used in sessions without a run of bulk-500, which would show the number. */
const standardRowsPerInsert = 15_000;

/** Runs the ways with the requested names. */
export async function runRounds(context: Context) {
  const { deployment, peers, options, progress, hasWrk, wanted, failed } = context;
  let rowsPerInsert = standardRowsPerInsert;

  const measureWay = async ({ name, subject, cheap }: Way, round: number): Promise<ThroughputRun> => {
    const { rate } = options;
    const more = {
      rate,
      warmUpSeconds: round === 1 ? warmUpSeconds.first : warmUpSeconds.later,
      byWrk: cheap && rate === undefined && hasWrk,
    };
    if (subject !== 'sluice') {
      // A peer accepts any app_id.
      const appIds = [`${name}-${round}`];
      return runWay(context, name, { ...more, subject: await peers.subject(subject), appIds });
    }
    const run = await runWay(context, name, more);
    if (name === 'bulk-500') {
      const last =
        "stored_events WHERE app_id = (SELECT app_id FROM stored_events WHERE app_id != '' ORDER BY segment DESC LIMIT 1)";
      rowsPerInsert = Math.round(await numberOf(deployment, 'count() / uniqExact(segment)', last));
    }
    return run;
  };
  const ways = [...sluiceWays, ...peerWays].map((way) => ({
    ...way,
    connections: options.connections ?? way.connections,
    run: (round: number) => measureWay(way, round),
  }));
  const engine = {
    ...engineFloor,
    once: false,
    connections: undefined,
    run: (round: number) => runEngine(deployment, `engine-${round}`, rowsPerInsert, options.duration),
  };
  const turns = [...ways, engine]
    .filter(({ name }) => wanted.has(name))
    .sort((a, b) => position(a.name) - position(b.name))
    .map((way) => ({ ...way, rounds: way.once ? 1 : options.repeats }));
  return (await inTurns<(typeof turns)[number]>(turns, progress, { failed }))
    .filter(({ runs }) => runs.length > 0)
    .map(({ name, what, subject, connections, runs }) => ({ name, what, subject, runs, connections }));
}

/** The two sides of a target run close together; all other ways follow. */
const order = [
  ...['uws', 'single', 'single-keys', 'uws-64', 'single-keys-64'],
  ...['bulk-500', 'bulk-500-keys', 'engine', 'fastify-single', 'fastify-bulk-500'],
];

function position(name: string): number {
  const index = order.indexOf(name);
  return index === -1 ? order.length : index;
}
