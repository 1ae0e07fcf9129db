// The ways to send records, each a scenario: the requests, the number of connections, and the records that an acknowledged
// request adds. Floors and peers get the same requests.

import type { Limits } from '../deployment/deployment.js';
import type { Records } from '../deployment/stored.js';
import { bulkBodies, type EventOptions, singleBodies, userOf } from '../load/events.js';
import { collectBodies, collected, identifyBodies, newUserOf, userPropertyBodies } from '../load/records.js';

/** The receiver: Sluice, a floor of HTTP, or a peer. */
export type SubjectName = 'sluice' | 'uws' | 'uws-synced' | 'fastify' | 'node-http';

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
  /** No body is sent twice: it has keys, or a user of its own. */
  readonly different: boolean;
  /** The whole answer; null if it depends on the request. */
  readonly answer: string | null;
  /** Runs only in the first round, since no target uses it. */
  readonly once: boolean;
  /** The request costs so little that the bench would use as much CPU as the service; wrk sends it where installed. */
  readonly cheap: boolean;
  readonly bodies: (count: number, options: EventOptions) => Buffer[];
  /** Whom the record of this number is about. */
  readonly user: (
    number: number,
    keyPrefix: string,
  ) => { readonly identity: string; readonly userId?: string };
};

/** A limit that is checked but never reached; the default limits of an environment would refuse most of a load. */
const farAway = 1_000_000_000;

const user = (number: number) => ({ identity: userOf(number) });
const common = {
  subject: 'sluice',
  path: '/api/track',
  answer: '{}',
  different: false,
  once: true,
  user,
} as const;
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

type Kind = Omit<Way, 'name' | 'what'>;
const way = (name: string, what: string, kind: Kind, more: Partial<Kind> = {}): Way => ({
  ...kind,
  ...more,
  name,
  what,
});
const always = { once: false } as const;

/** What Sluice is sent. */
export const sluiceWays: readonly Way[] = [
  way('single', 'one event per request', single, always),
  way('single-keys', 'one event per request, with keys', singleKeys, always),
  // With fewer connections fewer events share a commit.
  way('single-keys-64', 'one event per request, with keys, 64 connections', singleKeys, {
    ...always,
    connections: 64,
  }),
  way('bulk-10', 'bulk of 10', bulk(10)),
  way('bulk-100', 'bulk of 100', bulk(100)),
  way('bulk-500', 'bulk of 500', bulk(500), always),
  way('bulk-500-keys', 'bulk of 500, with keys', bulkKeys(500), always),
  way('bulk-1000', 'bulk of 1000', bulk(1000)),
  way('user-properties', 'properties of one user per request', single, {
    path: '/api/add_user_properties',
    records: { user_properties: 1 },
    bodies: userPropertyBodies,
  }),
  way('identify', 'one identification per request', single, {
    path: '/api/v1/identify',
    records: { user_identities: 1 },
    different: true,
    bodies: identifyBodies,
    user: newUserOf,
  }),
  way('collect', 'client library, 20 messages per request', single, {
    path: '/api/collect',
    limits: { collect_app: farAway },
    connections: 16,
    records: collected,
    different: true,
    answer: null,
    cheap: false,
    bodies: collectBodies,
    user: newUserOf,
  }),
];

/** ClickHouse alone gets the rows of bulk-500. */
export const engineFloor = { name: 'engine', what: 'ClickHouse alone', subject: 'engine' } as const;

/** Redis alone gets the bytes of the commits of `way`, in as many commands; without such a run, commits of the usual shape. */
export const redisFloors = [
  {
    name: 'redis-single',
    what: 'Redis alone, commits of single events',
    subject: 'redis',
    way: 'single',
    usual: { events: 70, commands: 8 },
  },
  {
    name: 'redis-bulk',
    what: 'Redis alone, commits of bulk requests',
    subject: 'redis',
    way: 'bulk-500',
    usual: { events: 1_000, commands: 12 },
  },
] as const;

const uws = { ...single, subject: 'uws' } as const;
const fastify = { subject: 'fastify' } as const;
const nodeHttp = { subject: 'node-http' } as const;

/** What floors and peers are sent: the very same bodies. */
export const peerWays: readonly Way[] = [
  way('uws', 'uWebSockets.js alone', uws, always),
  way('uws-64', 'uWebSockets.js alone, 64 connections', uws, { ...always, connections: 64 }),
  way('fastify-single', 'Fastify + BullMQ: one event per request', single, { ...fastify, ...always }),
  way('fastify-bulk-500', 'Fastify + BullMQ: bulk of 500', bulk(500), { ...fastify, ...always }),
  way('node-http-single', 'node:http: one event per request', single, nodeHttp),
  // ClickHouse collects rows for a fifth of a second, so a few connections would mostly wait.
  way('node-http-bulk-500', 'node:http: bulk of 500', bulk(500), { ...nodeHttp, connections: 64 }),
];

/** Throws if there is none. */
export function wayNamed(name: string): Way {
  const found = [...sluiceWays, ...peerWays].find((candidate) => candidate.name === name);
  if (found === undefined) throw new Error(`there is no way ${name}`);
  return found;
}
