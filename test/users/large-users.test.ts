// A user who is in every granule of a table is shown as fast as others: what a page asks for first does not read all of them.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { type ClickHouseClient, connectClickHouse } from '../../src/clickhouse/client.js';
import { userLookUps } from '../../src/contract/limits.js';
import { countUserEvents, lookUpUser } from '../../src/insights/users/look-up.js';
import { findSimilar } from '../../src/insights/users/similar.js';
import { readCursor, readTimeLine, type TimeLine } from '../../src/insights/users/time-line.js';
import type { ClickHouseHandle } from '../harness/clickhouse.js';
import { startMigratedClickHouse } from '../harness/migrated-database.js';
import { until } from '../harness/wait.js';
import { withMethod } from '../support/with-method.js';

const appId = '1000000001';
const dayMs = 24 * 60 * 60 * 1000;
const rows = 400_000;
/** One event in each hundred is of the large user; the events are spread over forty days. */
const large = 'large@example.com';
const { eventsPerPage, timeLineDays } = userLookUps;

let clickhouse: ClickHouseHandle;
let client: ClickHouseClient;

before(async () => {
  clickhouse = await startMigratedClickHouse();
  client = connectClickHouse({ url: clickhouse.url, database: 'sluice' });
  await insert(
    `number`,
    `if(number % 100 = 0, '${large}', concat('user-', toString(number)))`,
    `now64(3) - toIntervalMillisecond(intDiv(number * ${40 * dayMs}, ${rows}))`,
    rows,
  );
});
after(async () => {
  await client?.close();
  await clickhouse?.remove();
});

async function insert(row: string, identity: string, time: string, count: number): Promise<void> {
  await client.command({
    query: `INSERT INTO stored_events (app_id, event_id, event, identity, time, segment, commit_number, row_number, received_at)
      SELECT '${appId}', generateUUIDv4(), 'Seen', ${identity}, ${time}, 1, 1, ${row}, now64(3) FROM numbers(${count})`,
  });
}

async function rowsReadBy(work: (client: ClickHouseClient) => Promise<unknown>): Promise<number> {
  let read = 0;
  const counting = withMethod(client, 'exec', async (asked: Parameters<ClickHouseClient['exec']>[0]) => {
    const settings = { ...asked.clickhouse_settings, wait_end_of_query: 1 as const };
    const result = await client.exec({ ...asked, clickhouse_settings: settings });
    const summary = JSON.parse(String(result.response_headers['x-clickhouse-summary'])) as {
      read_rows: string;
    };
    read += Number(summary.read_rows);
    return result;
  });
  await work(counting);
  return read;
}

async function readAll(identity: string): Promise<TimeLine[]> {
  const pages: TimeLine[] = [];
  let after: string | undefined;
  do {
    pages.push(await readTimeLine(client, appId, { identity }, { after }));
    const cursor = pages.at(-1)?.cursor;
    after = cursor === undefined ? undefined : readCursor(cursor);
  } while (after !== undefined);
  return pages;
}

test('the events of a user come once each, from the latest, whether they are new, some days or years old', async () => {
  const identity = 'ada@example.com';
  // The events are of the future, of a few days, of one moment just before these days, and of long ago.
  const times = [
    'now64(3) + toIntervalDay(1)',
    'now64(3) - toIntervalMinute(number)',
    `now64(3) - toIntervalDay(${timeLineDays}) - toIntervalMinute(10)`,
    "toDateTime64('1970-01-02 00:00:00', 3)",
  ];
  const count = eventsPerPage + 20;
  for (const [index, time] of times.entries())
    await insert(`${(index + 1) * 1_000} + number`, `'${identity}'`, time, count);
  const pages = await readAll(identity);
  const events = pages.flatMap((page) => page.events);
  assert.equal(events.length, times.length * count);
  assert.equal(new Set(events.map(({ event_id }) => event_id)).size, events.length);
  const shown = events.map(({ time }) => time);
  assert.deepEqual(shown, shown.toSorted().reverse());
  assert.ok(pages.slice(0, -1).every((page) => page.events.length === eventsPerPage));
});

test('a page of a large user reads the last days only, and similar users are found without reading that user’s rows', async () => {
  const found = await lookUpUser(client, appId, { identity: large });
  assert.equal(found.found, true);
  const [events] = await countUserEvents(client, appId, { identity: large });
  assert.equal(events?.count, rows / 100);
  const inAll = await rowsReadBy((counting) => countUserEvents(counting, appId, { identity: large }));
  assert.ok(inAll >= rows, `${inAll} rows read for the counts`);

  const forPage = await rowsReadBy((counting) => readTimeLine(counting, appId, { identity: large }, {}));
  assert.ok(forPage < rows / 2, `${forPage} rows read for a page`);
  const forOther = await rowsReadBy((counting) =>
    readTimeLine(counting, appId, { identity: 'user-12345' }, {}),
  );
  assert.ok(forOther < rows / 4, `${forOther} rows read for a page of another user`);
  const forUser = await rowsReadBy((counting) => lookUpUser(counting, appId, { identity: large }));
  assert.ok(forUser < rows / 2, `${forUser} rows read for the user`);

  await insert('9_000_000 + number', `'Large@Example.com'`, 'now64(3)', 1);
  // Only users that are found within a second are in the answer, so a busy machine may find fewer.
  const untilFound = (identity: string, expected: readonly string[]) =>
    until(
      async () => isDeepStrictEqual(await findSimilar(client, [appId], identity), expected),
      `${expected.join(', ')} are what is similar to ${identity}`,
    );
  await untilFound(large, ['Large@Example.com']);
  const forSimilar = await rowsReadBy((counting) => findSimilar(counting, [appId], large));
  assert.ok(forSimilar < rows / 2, `${forSimilar} rows read for similar ones`);
  await untilFound('Large@Example.com', [large]);
  await untilFound('LARGE@example.com ', [large, 'Large@Example.com'].sort());
  assert.deepEqual(await findSimilar(client, [appId], ' '), []);
});
