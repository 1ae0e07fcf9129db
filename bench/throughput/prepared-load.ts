// The requests of one run of a way, built before its clock starts: which bodies each connection sends.

import { randomBytes } from 'node:crypto';
import { sumOf } from '../deployment/stored.js';
import { mixedRequests } from '../load/records.js';
import type { Way } from './ways.js';

/** Bodies that may repeat: this many are built, of as many users, and sent repeatedly. */
const repeatedBodies = { requests: 128_000, bytes: 40_000_000 };
/** Bodies that must all differ are in memory together. */
const bodyBytesMax = 1_500_000_000;

export type PreparedLoad = {
  readonly requests: number;
  /** Of each connection. */
  readonly bodies: readonly (readonly Buffer[])[];
  /** For the mixture: the keys of the requests of each connection. */
  readonly keys: readonly (readonly string[])[];
  readonly answers: () => number;
  readonly answered: (count: number) => void;
};

/**
 * Builds the bodies of this many requests, or fewer if they would take too much memory. If they must differ, no other
 * call builds the same ones.
 */
export function prepareLoad(
  { way, appId, connections }: { readonly way: Way; readonly appId: string; readonly connections: number },
  wanted: number,
): PreparedLoad {
  const size = sizeOf(way);
  const fitting = wholeRounds(Math.min(wanted, bodyBytesMax / size), connections);
  const requests = way.different ? fitting : wanted;
  const each = requests / connections;
  const keyPrefix = randomBytes(6).toString('hex');
  const repeated = Math.min(repeatedBodies.requests, repeatedBodies.bytes / size);
  const bodyCount = way.different ? each : Math.min(each, Math.ceil(repeated / connections));
  const eventsEach = way.records === 'by answer' ? 1 : sumOf(way.records);
  const lists = Array.from({ length: connections }, (_, connection) => {
    const options = { appId, keyPrefix, first: connection * bodyCount * eventsEach };
    if (way.records === 'by answer') return mixedRequests(bodyCount, options);
    return way.bodies(bodyCount, options).map((body) => ({ body, key: '' }));
  });
  let answers = 0;
  return {
    requests,
    bodies: lists.map((list) => list.map(({ body }) => body)),
    keys: way.records === 'by answer' ? lists.map((list) => list.map(({ key }) => key)) : [],
    answers: () => answers,
    answered: (count) => {
      answers = count;
    },
  };
}

/** The bodies of all connections in one list, one of each in turn. */
export function inOneList(bodies: readonly (readonly Buffer[])[]): Buffer[] {
  const length = Math.max(...bodies.map((list) => list.length));
  return Array.from({ length }, (_, i) => bodies.flatMap((list) => list[i] ?? [])).flat();
}

/** The size of one body in bytes. */
function sizeOf(way: Way): number {
  if (way.records === 'by answer') return 300;
  return way.bodies(1, { appId: '1234567890', keyPrefix: 'size', first: 0 })[0]?.length ?? 1;
}

/** The number of requests, rounded so that every connection sends the same number. */
export function wholeRounds(requests: number, connections: number): number {
  return Math.max(1, Math.round(requests / connections)) * connections;
}
