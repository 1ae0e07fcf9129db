// Processes that are killed, asked to end, or paused for long enough that others take over their work.

import type { Child } from '../../harness/services.js';
import { type Fault, hold, type Part, type World } from './fault.js';

/** The processes by part, under the names that the faults use. */
const targets: readonly (readonly [kind: string, parts: readonly Part[]])[] = [
  ['api', ['api-1', 'api-2']],
  ['worker', ['worker-1', 'worker-2']],
  ['redis', ['redis']],
  ['clickhouse', ['clickhouse']],
];

export function childOf(world: World, part: Part): Child {
  const [kind, number] = part.split('-');
  const children = kind === 'api' ? world.sluice.api : world.sluice.workers;
  const child =
    part === 'redis' ? world.server : part === 'clickhouse' ? world.clickhouse : children[Number(number) - 1];
  if (child === undefined) throw new Error(`there is no process ${part}`);
  return child;
}

/** Notes that callers of this process may get no answer. */
export function disturb(world: World, part: Part): void {
  if (part.startsWith('api-')) world.disturbedApis.add(part);
}

function kill(name: string, part: Part): Fault {
  return {
    name,
    touches: [part],
    run: async (world, random) => {
      disturb(world, part);
      const child = childOf(world, part);
      const { signal } = await child.kill9();
      await hold(random.int(0, 800));
      await child.restart();
      return signal === 'SIGKILL';
    },
  };
}

function terminate(name: string, part: Part): Fault {
  return {
    name,
    touches: [part],
    run: async (world) => {
      disturb(world, part);
      const child = childOf(world, part);
      const { code } = await child.sigterm(40_000);
      await child.restart();
      return code === 0;
    },
  };
}

/**
 * Longer than a job's lock plus the interval of the check for silent workers, so that a paused worker continues as a
 * zombie.
 */
function stop(name: string, part: Part): Fault {
  const [min, max] = part.startsWith('worker') ? [2_200, 3_500] : [400, 2_500];
  return {
    name,
    touches: [part],
    run: async (world, random) => {
      disturb(world, part);
      const child = childOf(world, part);
      child.sigstop();
      await hold(random.int(min, max));
      child.sigcont();
      return child.running;
    },
  };
}

/** All processes at once: ours, Redis and ClickHouse. */
const killEverything: Fault = {
  name: 'kill everything',
  touches: ['api-1', 'api-2', 'worker-1', 'worker-2', 'redis', 'clickhouse'],
  run: async (world) => {
    const { server, clickhouse, sluice } = world;
    const ours = [...sluice.api, ...sluice.workers];
    disturb(world, 'api-1');
    disturb(world, 'api-2');
    const exits = await Promise.all([server, clickhouse, ...ours].map((child) => child.kill9()));
    await Promise.all([server.restart(), clickhouse.restart()]);
    await Promise.all(ours.map((child) => child.restart()));
    return exits.every(({ signal }) => signal === 'SIGKILL');
  },
};

export const processFaults: readonly Fault[] = [
  ...targets.flatMap(([kind, parts]) =>
    parts.flatMap((part) => [
      kill(`kill ${kind}`, part),
      terminate(`terminate ${kind}`, part),
      stop(`stop ${kind}`, part),
    ]),
  ),
  killEverything,
];
