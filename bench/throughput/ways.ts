// The ways to send records, each a scenario: what a request is, how many connections send, and which records an
// acknowledged request stands for. The same ways are sent to what the service is compared with.

import type { Limits } from '../deployment/deployment.js';
import type { Records } from '../deployment/stored.js';
import { bulkBodies, type EventOptions, singleBodies } from '../load/events.js';
import { collectBodies, collected, identifyBodies, userPropertyBodies } from '../load/records.js';

/** Where a way is sent: to Sluice, to one of the floors of HTTP, or to one of the peers. */
export const subjectNames = ['sluice', 'uws', 'uws-synced', 'fastify', 'node-http'] as const;
export type SubjectName = (typeof subjectNames)[number];

export type Way = {
  readonly name: string;
  readonly what: string;
  readonly subject: SubjectName;
  readonly path: string;
  readonly limits: Limits;
  /** Unless the command line says otherwise. */
  readonly connections: number;
  /** What one acknowledged request adds to each table; for the mixture that depends on the answers. */
  readonly records: Records | 'by answer';
  /** Every body is sent only once: it carries keys, or has a user of its own. */
  readonly different: boolean;
  /** The whole answer; null if it depends on the request. */
  readonly answer: string | null;
  /** Measured only in the first round, since no target depends on it. */
  readonly once: boolean;
  readonly bodies: (count: number, options: EventOptions) => Buffer[];
};

/** So high that a limit is checked and never reached; with the default limits no bulk load runs at full speed. */
const farAway = 1_000_000_000;

const common = { subject: 'sluice', path: '/api/track', answer: '{}', different: false, once: true } as const;
/** For single events: some dozens of producers, each with a pool of several connections. */
const manyConnections = 256;
/** A few producers: fewer requests wait for each commit and share its cost. */
const fewConnections = 64;
const single = {
  ...common,
  limits: 'default',
  connections: manyConnections,
  records: { events: 1 },
} as const;
const singles = (count: number, options: EventOptions) =>
  singleBodies(count, { ...options, keyPrefix: undefined });

function bulk(events: number) {
  return {
    ...common,
    limits: 'none',
    connections: 8,
    records: { events },
    bodies: (count: number, options: EventOptions) =>
      bulkBodies(count, events, { ...options, keyPrefix: undefined }),
  } as const;
}

function bulkKeys(events: number) {
  return {
    ...bulk(events),
    different: true,
    bodies: (count: number, options: EventOptions) => bulkBodies(count, events, options),
  } as const;
}

const singleKeys = { ...single, different: true, bodies: singleBodies } as const;

/** What Sluice is sent. */
export const sluiceWays: readonly Way[] = [
  { ...single, name: 'single', what: 'one event a request', bodies: singles, once: false },
  { ...singleKeys, name: 'single-keys', what: 'one event a request, with keys', once: false },
  {
    ...single,
    name: 'single-few',
    what: 'one event a request, fewer connections',
    connections: fewConnections,
    bodies: singles,
  },
  { ...bulk(10), name: 'bulk-10', what: 'bulk of 10' },
  { ...bulk(100), name: 'bulk-100', what: 'bulk of 100' },
  { ...bulk(500), name: 'bulk-500', what: 'bulk of 500', once: false },
  { ...bulkKeys(500), name: 'bulk-500-keys', what: 'bulk of 500, with keys', once: false },
  {
    ...bulk(500),
    name: 'bulk-500-limits',
    what: 'bulk of 500, limits checked',
    limits: { bulk_app: farAway, bulk_identity: farAway },
  },
  { ...bulk(1000), name: 'bulk-1000', what: 'bulk of 1000' },
  {
    ...single,
    name: 'mixed',
    what: 'mixed: 80 % new, 15 % repeats, 5 % of limited users',
    records: 'by answer',
    different: true,
    bodies: () => [],
  },
  {
    ...single,
    name: 'user-properties',
    what: 'properties of one user a request',
    path: '/api/add_user_properties',
    records: { user_properties: 1 },
    bodies: userPropertyBodies,
  },
  {
    ...single,
    name: 'identify',
    what: 'one identification a request',
    path: '/api/v1/identify',
    records: { user_identities: 1 },
    different: true,
    bodies: identifyBodies,
  },
  {
    ...single,
    name: 'collect',
    what: 'client library, 20 messages a request',
    path: '/api/collect',
    connections: 16,
    records: collected,
    different: true,
    answer: null,
    bodies: collectBodies,
  },
];

/** What the floors of HTTP and the peers are sent: exactly the same bodies. */
export const peerWays: readonly Way[] = [
  { ...single, name: 'uws', what: 'uWebSockets.js alone', subject: 'uws', bodies: singles, once: false },
  {
    ...single,
    name: 'uws-few',
    what: 'uWebSockets.js alone, fewer connections',
    subject: 'uws',
    connections: fewConnections,
    bodies: singles,
  },
  {
    ...single,
    name: 'uws-synced',
    what: 'uWebSockets.js and a synced file',
    subject: 'uws-synced',
    bodies: singles,
  },
  {
    ...single,
    name: 'fastify-single',
    what: 'Fastify + BullMQ: one event a request',
    subject: 'fastify',
    bodies: singles,
    once: false,
  },
  {
    ...singleKeys,
    name: 'fastify-single-keys',
    what: 'Fastify + BullMQ: one event a request, with keys',
    subject: 'fastify',
  },
  {
    ...bulk(500),
    name: 'fastify-bulk-500',
    what: 'Fastify + BullMQ: bulk of 500',
    subject: 'fastify',
    once: false,
  },
  {
    ...bulkKeys(500),
    name: 'fastify-bulk-500-keys',
    what: 'Fastify + BullMQ: bulk of 500, with keys',
    subject: 'fastify',
  },
  {
    ...single,
    name: 'node-http-single',
    what: 'node:http: one event a request',
    subject: 'node-http',
    bodies: singles,
  },
  {
    ...bulk(500),
    name: 'node-http-bulk-500',
    what: 'node:http: bulk of 500',
    subject: 'node-http',
  },
];
