// The ways to send records, each of which is a scenario: the requests, the number of connections, and the records that an acknowledged
// request adds. Floors and peers get the same requests.

import type { Limits } from '../deployment/deployment.js';
import type { Records } from '../deployment/stored.js';
import {
  bulkOf,
  collected,
  collectOf,
  eventOf,
  identifyOf,
  type MakeRequest,
  newUserOf,
  segmentBatchOf,
  userOf,
  userPropertiesOf,
} from '../load/events.js';

/** The receiver: Sluice, a floor of HTTP, or a peer. */
type SubjectName = 'sluice' | 'uws' | 'uws-synced' | 'fastify';

export type Way = {
  readonly name: string;
  readonly what: string;
  readonly subject: SubjectName;
  readonly path: string;
  readonly limits: Limits;
  /** The default; the command line may set another number. */
  readonly connections: number;
  /** The field of a body that names the environment; by default `app_id`. */
  readonly environmentField?: 'writeKey';
  /** What one acknowledged request adds to each table. */
  readonly records: Records;
  /** Whether no body is sent twice, since it has keys or a unique user. */
  readonly different: boolean;
  /** The complete answer; null if it depends on the request. */
  readonly answer: string | null;
  /** Whether it runs only in the first round, since no target uses it. */
  readonly once: boolean;
  /** Whether a request costs so little that the bench would use as much CPU as the service. So wrk sends it, if that is installed. */
  readonly cheap: boolean;
  readonly request: MakeRequest;
  /** The user whom the record with this number is about, in a load whose users have the prefix in their names. */
  readonly user: (number: number, keyPrefix: string) => string;
};

/** Limits that are checked but never reached, since an environment's default limits would refuse most of a load. */
const farAway = 1_000_000_000;
export const ofEnvironment = { app_records: farAway, app_bytes: farAway } as const;

const newUser = (number: number, keyPrefix: string) => newUserOf(number, keyPrefix).identity;
const track = { subject: 'sluice', path: '/api/track', answer: '{}' } as const;
const common = { ...track, different: false, once: true, user: userOf } as const;
const single = {
  ...common,
  limits: ofEnvironment,
  // A few dozen producers, each with a pool of several connections.
  connections: 256,
  records: { events: 1 },
  cheap: true,
  request: eventOf,
} as const;

function bulk(events: number) {
  const [records, request] = [{ events }, bulkOf(events)];
  return { ...common, limits: 'none', connections: 8, records, cheap: false, request } as const;
}

type Kind = Omit<Way, 'name' | 'what'>;
const way = (name: string, what: string, kind: Kind, ...more: readonly Partial<Kind>[]): Way =>
  Object.assign({ name, what }, kind, ...more);
const always = { once: false } as const;
const keys = { different: true } as const;
/** With fewer connections, fewer events share a commit. */
const fewer = { connections: 64 } as const;

export const sluiceWays: readonly Way[] = [
  way('single', 'one event per request', single, always),
  way('single-keys', 'one event per request, with keys', single, keys, always),
  way('single-keys-64', 'one event per request, with keys, 64 connections', single, keys, always, fewer),
  way('bulk-10', 'bulk of 10', bulk(10)),
  way('bulk-100', 'bulk of 100', bulk(100)),
  way('segment-100', 'batch of 100 by Segment’s protocol', bulk(100), keys, {
    path: '/v1/batch',
    environmentField: 'writeKey',
    answer: '{"success":true}',
    request: segmentBatchOf(100),
  }),
  way('bulk-500', 'bulk of 500', bulk(500), always),
  way('bulk-500-keys', 'bulk of 500, with keys', bulk(500), keys, always),
  way('bulk-1000', 'bulk of 1000', bulk(1000)),
  way('user-properties', 'properties of one user per request', single, {
    path: '/api/add_user_properties',
    records: { user_properties: 1 },
    request: userPropertiesOf,
  }),
  way('identify', 'one identification per request', single, {
    path: '/api/v1/identify',
    records: { user_identities: 1 },
    different: true,
    request: identifyOf,
    user: newUser,
  }),
  way('collect', 'client library, 20 messages per request', single, {
    path: '/api/collect',
    limits: { ...ofEnvironment, collect_app: farAway },
    connections: 16,
    records: collected,
    different: true,
    answer: null,
    cheap: false,
    request: collectOf,
    user: newUser,
  }),
];

/** ClickHouse alone gets the rows of bulk-500. */
export const engineFloor = { name: 'engine', what: 'ClickHouse alone', subject: 'engine' } as const;

const uws = { ...single, subject: 'uws' } as const;
const fastify = { subject: 'fastify' } as const;

/** The ways of floors and peers, which get exactly the same bodies. */
export const peerWays: readonly Way[] = [
  way('uws', 'uWebSockets.js alone', uws, always),
  way('uws-64', 'uWebSockets.js alone, 64 connections', uws, always, fewer),
  way('fastify-single', 'Fastify + BullMQ: one event per request', single, fastify, always),
  way('fastify-bulk-500', 'Fastify + BullMQ: bulk of 500', bulk(500), fastify, always),
];

export function wayNamed(name: string): Way {
  const found = [...sluiceWays, ...peerWays].find((candidate) => candidate.name === name);
  if (found === undefined) throw new Error(`there is no way ${name}`);
  return found;
}
