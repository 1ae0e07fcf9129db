// How much more does an event cost before its commit when other users of its account are suppressed? This process reads and prepares the
// events of requests, alternately without and with suppressed users.

import { randomBytes } from 'node:crypto';
import { eventKind } from '../../src/ingest/event.js';
import { createLimitKeys } from '../../src/ingest/limit-key.js';
import { readPlainEvents } from '../../src/ingest/plain-events.js';
import { type PrepareContext, preparePlain } from '../../src/ingest/prepare.js';
import { createNameSet } from '../../src/privacy/suppression/name-set.js';
import { createNameHasher, readName } from '../../src/privacy/suppression/names.js';
import { usersOfSet } from '../../src/privacy/suppression/suppressions.js';
import type { LiveEnvironment } from '../../src/registry/environments.js';
import { BenchError } from '../failure.js';

/** A pair of runs: µs per event. */
export type Pair = { readonly without: number; readonly with: number };

const appId = '1000000001';
const events = 20_000;
const eventsEach = 500;
const warmUps = 8;
const pairs = 20;

export function measureSuppressed(suppressed: number) {
  const hasher = createNameHasher(randomBytes(32).toString('hex'), '1');
  const names = createNameSet(suppressed);
  for (let user = 0; user < suppressed; user += 1) {
    names.add(readName(hasher.textOf({ identity: `suppressed${user}@example.com` })).hash, 0);
  }
  const users = usersOfSet(hasher, names, 1, { accountId: '1', appId });
  const [none, many] = [contextOf(() => undefined), contextOf(() => users)];
  const alone = Array.from({ length: events }, (_, i) => bodyOf(eventOf(i)));
  const bulk = Array.from({ length: events / eventsEach }, (_, at) =>
    bodyOf({ events: Array.from({ length: eventsEach }, (_, i) => eventOf(at * eventsEach + i)) }),
  );
  const measure = (bodies: readonly Buffer[]): Pair[] => {
    const found = Array.from({ length: warmUps + pairs }, () => ({
      without: costOf(bodies, none),
      with: costOf(bodies, many),
    }));
    return found.slice(warmUps);
  };
  // Warms up with both kinds of requests, since V8 has seen both in a running service too.
  for (let i = 0; i < warmUps; i += 1) for (const bodies of [alone, bulk]) costOf(bodies, many);
  return { suppressed, alone: measure(alone), inBulk: measure(bulk) };
}

function costOf(bodies: readonly Buffer[], context: PrepareContext): number {
  const startedAt = performance.now();
  let count = 0;
  for (const body of bodies) {
    const read = readPlainEvents(body, true, context.nowMs);
    const ready = read && preparePlain(eventKind, read, context);
    if (ready === undefined) throw new BenchError('an event of the bench is not plain');
    if (ready.submission.groups[0]?.marks !== undefined) throw new BenchError('another user was suppressed');
    count += ready.records;
  }
  return ((performance.now() - startedAt) / count) * 1000;
}

function contextOf(of: PrepareContext['suppressions']['of']): PrepareContext {
  const environment: LiveEnvironment = {
    registryVersion: 0,
    appId,
    accountId: '1',
    lenient: false,
    needsWriteKey: false,
    hasWriteKey: false,
    origins: undefined,
    shard: 0,
    allowedIdentities: new Set(),
    // All limits are off.
    limits: {} as LiveEnvironment['limits'],
  };
  const reach = () => Promise.resolve();
  const suppressions = { version: () => 1, of, reach, close: () => undefined };
  const limitKeys = createLimitKeys('bench');
  return { environment, limitKeys, suppressions, nowMs: Date.now(), strictBulk: false };
}

function eventOf(number: number) {
  const identity = `user${number * 7919}@shop.example.com`;
  const properties = { amount: 12.5, currency: 'EUR', plan: 'pro' };
  return { event: 'Order Completed', identity, properties };
}

function bodyOf(request: object): Buffer {
  return Buffer.from(JSON.stringify({ app_id: appId, ...request }));
}
