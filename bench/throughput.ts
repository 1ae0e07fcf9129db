// The highest rate and the CPU of an event, for each way to send events: the table of ways, and one run.

import { sendClosedLoop } from './closed-loop.js';
import type { Context } from './context.js';
import type { Limits } from './deployment.js';
import { bulkBodies, type EventOptions, singleBodies } from './events.js';
import { measure, type Run } from './measure.js';
import { untilStored } from './stored.js';

export type Way = {
  readonly name: string;
  readonly what: string;
  readonly eventsPerRequest: number;
  /** Every event carries an idempotency key of its own. */
  readonly keys: boolean;
  readonly limits: Limits;
  readonly connections: number;
};

const single = { eventsPerRequest: 1, limits: 'default', connections: 64 } as const;
const bulk = { eventsPerRequest: 500, limits: 'none', connections: 8 } as const;
/** So high that a limit is checked and never met; under the default ones no bulk load runs at full speed. */
const farAway = 1_000_000_000;

export const ways: readonly Way[] = [
  { ...single, name: 'single', what: 'one event a request', keys: false },
  { ...single, name: 'single-keys', what: 'one event a request, with keys', keys: true },
  { ...bulk, name: 'bulk', what: 'bulk of 500', keys: false },
  { ...bulk, name: 'bulk-keys', what: 'bulk of 500, with keys', keys: true },
  {
    ...bulk,
    name: 'bulk-limits',
    what: 'bulk of 500, limits checked',
    keys: false,
    limits: { bulk_app: farAway, bulk_identity: farAway },
  },
];

const warmUpEvents = { single: 40_000, bulk: 100_000 };
/** Bodies without keys are sent over and over; as many a connection. */
const repeatedBodies = { single: 2000, bulk: 10 };

/** Warms up, then sends as fast as it is answered for about the context's seconds. */
export async function runThroughput(context: Context, way: Way, round: number): Promise<Run> {
  const { deployment, redis, acknowledged } = context;
  const { connections, eventsPerRequest } = way;
  const { url } = deployment;
  const appId = await deployment.addEnvironment(`${way.name} ${round}`, way.limits);

  const warmUpRequests = wholeRounds(warmUpEvents[kindOf(way)] / eventsPerRequest, connections);
  const warmUpBodies = bodiesOf(way, warmUpRequests, { appId, first: 0, keyPrefix: 'warm-up' });
  const warmUp = await sendClosedLoop({ url, bodies: warmUpBodies, requests: warmUpRequests });
  const eventsBefore = warmUpRequests * eventsPerRequest;
  await untilStored(deployment, appId, eventsBefore);

  const requests = wholeRounds((warmUpRequests / warmUp.seconds) * context.seconds, connections);
  const bodies = bodiesOf(way, requests, { appId, first: 0, keyPrefix: 'run' });
  const events = requests * eventsPerRequest;
  const load = () => sendClosedLoop({ url, bodies, requests });
  const { run } = await measure({ deployment, redis, appId, eventsBefore, requests, events, load });
  acknowledged.set(appId, eventsBefore + events);
  return run;
}

/** The bodies of every connection: all different ones with keys, else some to send over and over. */
function bodiesOf(way: Way, requests: number, options: EventOptions): Buffer[][] {
  const { connections, eventsPerRequest, keys } = way;
  const each = keys ? requests / connections : Math.min(requests / connections, repeatedBodies[kindOf(way)]);
  return Array.from({ length: connections }, (_, connection) => {
    const own = {
      ...options,
      first: options.first + connection * each * eventsPerRequest,
      keyPrefix: keys ? options.keyPrefix : undefined,
    };
    return eventsPerRequest === 1 ? singleBodies(each, own) : bulkBodies(each, eventsPerRequest, own);
  });
}

function kindOf({ eventsPerRequest }: Way): 'single' | 'bulk' {
  return eventsPerRequest === 1 ? 'single' : 'bulk';
}

/** As many requests that every connection sends the same number. */
function wholeRounds(requests: number, connections: number): number {
  return Math.max(1, Math.round(requests / connections)) * connections;
}
