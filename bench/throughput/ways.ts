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
  /** What one acknowledged request adds to each table. */
  readonly records: Records;
  /** Every body is sent only once: it carries keys, or has a user of its own. */
  readonly different: boolean;
  /** The whole answer; null if it depends on the request. */
  readonly answer: string | null;
  /** Measured only in the first round, since no target depends on it. */
  readonly once: boolean;
  /** Sent by wrk where it is installed: the request costs so little that any other generator takes as much as the service. */
  readonly cheap: boolean;
  readonly bodies: (count: number, options: EventOptions) => Buffer[];
};

/** So high that a limit is checked and never reached; with the default limits no bulk load runs at full speed. */
const farAway = 1_000_000_000;

const common = { subject: 'sluice', path: '/api/track', answer: '{}', different: false, once: true } as const;
const single = {
  ...common,
  limits: 'default',
  // Some dozens of producers, each with a pool of several connections.
  connections: 256,
  records: { events: 1 },
  cheap: true,
  bodies: (count: number, options: EventOptions) => singleBodies(count, { ...options, keyPrefix: undefined }),
} as const;
const singleKeys = { ...single, different: true, bodies: singleBodies } as const;

function bulk(events: number) {
  return {
    ...common,
    limits: 'none',
    connections: 8,
    records: { events },
    cheap: false,
    bodies: (count: number, options: EventOptions) =>
      bulkBodies(count, events, { ...options, keyPrefix: undefined }),
  } as const;
}

function bulkKeys(events: number) {
  const bodies = (count: number, options: EventOptions) => bulkBodies(count, events, options);
  return { ...bulk(events), different: true, bodies } as const;
}

/** Fewer connections than usual: fewer events share a commit. */
const connectionsOf = (connections: number, once: boolean): Way[] => [
  {
    ...single,
    name: `single-${connections}`,
    what: `one event a request, ${connections} connections`,
    connections,
  },
  {
    ...singleKeys,
    name: `single-keys-${connections}`,
    what: `one event a request, with keys, ${connections} connections`,
    connections,
    once,
  },
];

/** What Sluice is sent. */
export const sluiceWays: readonly Way[] = [
  { ...single, name: 'single', what: 'one event a request', once: false },
  { ...singleKeys, name: 'single-keys', what: 'one event a request, with keys', once: false },
  ...connectionsOf(64, false),
  ...connectionsOf(16, true),
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
    cheap: false,
    bodies: collectBodies,
  },
];

const uws = { ...single, subject: 'uws' } as const;
const fastify = { subject: 'fastify' } as const;
const nodeHttp = { subject: 'node-http' } as const;

/** What the floors of HTTP and the peers are sent: exactly the same bodies. */
export const peerWays: readonly Way[] = [
  { ...uws, name: 'uws', what: 'uWebSockets.js alone', once: false },
  { ...uws, name: 'uws-64', what: 'uWebSockets.js alone, 64 connections', connections: 64, once: false },
  { ...uws, name: 'uws-16', what: 'uWebSockets.js alone, 16 connections', connections: 16 },
  { ...single, name: 'uws-synced', what: 'uWebSockets.js and a synced file', subject: 'uws-synced' },
  {
    ...single,
    ...fastify,
    name: 'fastify-single',
    what: 'Fastify + BullMQ: one event a request',
    once: false,
  },
  {
    ...singleKeys,
    ...fastify,
    name: 'fastify-single-keys',
    what: 'Fastify + BullMQ: one event a request, with keys',
  },
  { ...bulk(500), ...fastify, name: 'fastify-bulk-500', what: 'Fastify + BullMQ: bulk of 500', once: false },
  {
    ...bulkKeys(500),
    ...fastify,
    name: 'fastify-bulk-500-keys',
    what: 'Fastify + BullMQ: bulk of 500, with keys',
  },
  { ...single, ...nodeHttp, name: 'node-http-single', what: 'node:http: one event a request' },
  // ClickHouse gathers what comes within a fifth of a second, so few connections would wait most of the time.
  { ...bulk(500), ...nodeHttp, name: 'node-http-bulk-500', what: 'node:http: bulk of 500', connections: 64 },
];

/** Throws if there is none. */
export function wayNamed(name: string): Way {
  const way = [...sluiceWays, ...peerWays].find((candidate) => candidate.name === name);
  if (way === undefined) throw new Error(`there is no way ${name}`);
  return way;
}
