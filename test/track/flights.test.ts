// Real data through the whole service: 20,000 flights loaded in bulk come out of ClickHouse as they went in.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { unlimited } from '../harness/accounts.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { untilStored } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

type Flight = {
  /** `2001/01/01 00:47`, taken as UTC. */
  readonly date: string;
  /** Minutes; below zero when early. */
  readonly delay: number;
  readonly distance: number;
  readonly origin: string;
  readonly destination: string;
};

type Origin = {
  origin: string;
  flights: number;
  delay: number;
  distance: number;
  destinations: number;
  first: string;
  last: string;
};

const eventsPerRequest = 1000;
const data = fileURLToPath(
  new URL('../../../node_modules/vega-datasets/data/flights-20k.json', import.meta.url),
);
const flights = JSON.parse(readFileSync(data, 'utf8')) as Flight[];
const keys = new Map(flights.map((flight, number) => [flight, number]));

const sluice = await ownSluice();
await sluice.admin('environments', 'set', sluice.appId, ...unlimited);

test('stores 20,000 flights sent in bulk once each, with their own times and properties', async () => {
  const batches: Flight[][] = [];
  for (let at = 0; at < flights.length; at += eventsPerRequest) {
    batches.push(flights.slice(at, at + eventsPerRequest));
  }
  await Promise.all(batches.map(sendUntilTaken));

  await until(async () => (await countStored()) >= flights.length, 'all flights are in ClickHouse');
  await assertStoredOnce();
});

test('stores no flight again after Redis has forgotten its key or was lost, even if half of them have changed', async () => {
  const changed = flights.map((flight, number) =>
    number % 2 === 0 ? flight : { ...flight, delay: flight.delay + 1 },
  );
  for (const [number, flight] of changed.entries()) keys.set(flight, number);
  const loadAgain = async () => {
    const batches: Flight[][] = [];
    for (let at = 0; at < changed.length; at += eventsPerRequest) {
      batches.push(changed.slice(at, at + eventsPerRequest));
    }
    await Promise.all(batches.map(sendUntilTaken));
    await untilStored(sluice);
    await assertStoredOnce();
  };
  await withRedis(sluice, forgetKeys);
  await loadAgain();
  await withRedis(sluice, (redis) => redis.flushall());
  await sluice.admin('restore');
  await loadAgain();
});

async function assertStoredOnce(): Promise<void> {
  const stored = await sluice.rows<Origin>(`SELECT
      identity AS origin,
      toUInt32(count()) AS flights,
      sum(toFloat64OrNull(properties['delay'])) AS delay,
      sum(toFloat64OrNull(properties['distance'])) AS distance,
      toUInt32(uniqExact(properties['destination'])) AS destinations,
      toString(min(time)) AS first,
      toString(max(time)) AS last
    FROM events WHERE app_id = '${sluice.appId}' AND event = 'Flight' GROUP BY identity ORDER BY identity`);
  assert.deepEqual(stored, expectedOrigins());
  assert.equal(await countStored(), flights.length);
}

/**
 * The API process learns within a second that the limits are off, and refuses whole requests until then. A batch of this size may take
 * longer than a commit may, so a request that is answered 503 is sent again, as a producer should.
 */
async function sendUntilTaken(batch: readonly Flight[]): Promise<void> {
  const answer = await until(async () => {
    const latest = await send(batch);
    return latest.status === 429 || latest.status === 503 ? undefined : latest;
  }, 'the limits are off, and the batch is taken');
  assert.deepEqual(answer, { status: 200, body: '{}' });
}

async function send(batch: readonly Flight[]): Promise<{ status: number; body: string }> {
  const reply = await fetch(`${sluice.baseUrl}/api/track`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ app_id: sluice.appId, events: batch.map(eventOf) }),
  });
  return { status: reply.status, body: await reply.text() };
}

function eventOf(flight: Flight): object {
  const { date, origin, destination, distance, delay } = flight;
  return {
    event: 'Flight',
    idempotency_key: `flight-${keys.get(flight)}`,
    identity: origin,
    timestamp: `${date.replaceAll('/', '-').replace(' ', 'T')}:00Z`,
    properties: { destination, distance, delay },
  };
}

async function countStored(): Promise<number> {
  const rows = await sluice.rows<{ events: number }>(
    `SELECT toUInt32(count()) AS events FROM events WHERE app_id = '${sluice.appId}'`,
  );
  return rows[0]?.events ?? 0;
}

/** The expected figures for every origin, from the file. */
function expectedOrigins(): Origin[] {
  const destinations = new Map<string, Set<string>>();
  const origins = new Map<string, Origin>();
  for (const { date, origin, destination, distance, delay } of flights) {
    const time = `${date.replaceAll('/', '-')}:00.000`;
    const known = origins.get(origin) ?? {
      origin,
      flights: 0,
      delay: 0,
      distance: 0,
      destinations: 0,
      first: time,
      last: time,
    };
    const seen = destinations.get(origin) ?? new Set<string>();
    destinations.set(origin, seen.add(destination));
    origins.set(origin, {
      origin,
      flights: known.flights + 1,
      delay: known.delay + delay,
      distance: known.distance + distance,
      destinations: seen.size,
      first: time < known.first ? time : known.first,
      last: time > known.last ? time : known.last,
    });
  }
  return [...origins.values()].sort((a, b) => (a.origin < b.origin ? -1 : 1));
}
