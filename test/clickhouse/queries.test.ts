// src/clickhouse/queries.sql: each query of the page, run as the user `reader` on events that came through the API, with the answer
// that a person can count by hand.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before, test } from 'node:test';
import { createEnvironments, unlimited } from '../harness/accounts.js';
import { query } from '../harness/clickhouse.js';
import { paths, post, untilStored } from '../harness/ingestion.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const [appId = ''] = await createEnvironments(sluice, [unlimited]);

const dayMs = 86_400_000;
const iso = (ms: number) => new Date(ms).toISOString();
const day = (ms: number) => iso(ms).slice(0, 10);
const mondayOf = (ms: number) => Math.floor((ms / dayMs + 3) / 7) * 7 * dayMs - 3 * dayMs;
/** The first week, eight weeks ago, and noon of yesterday. */
const monday = mondayOf(Date.now()) - 56 * dayMs;
const yesterday = Math.floor(Date.now() / dayMs) * dayMs - dayMs / 2;
const [secondMonday, tuesday, wednesday] = [monday + 7 * dayMs, monday + 8 * dayMs, monday + 16 * dayMs];

before(async () => {
  const event = (ms: number, name: string, user: object, session_id: string, properties = {}) => ({
    event: name,
    ...user,
    session_id,
    timestamp: iso(ms),
    properties,
  });
  const [device, ada, bob, cleo] = [
    { user_id: '7' },
    { identity: 'ada' },
    { identity: 'bob' },
    { user_id: '9' },
  ];
  const [second, minute, hour] = [1_000, 60_000, 3_600_000];
  const euros = (amount: number | string) => ({ amount, currency: 'EUR' });
  const events = [
    event(monday + 10 * hour, 'Page View', device, 's1', { path: '/', utm_source: 'news' }),
    event(monday + 10 * hour + minute, 'Added To Cart', device, 's1'),
    event(monday + 10 * hour + 5 * minute, 'Order Completed', ada, 's1', euros(12.5)),
    event(monday + 11 * hour, 'Page View', bob, 'b1', { path: '/' }),
    event(secondMonday, 'Added To Cart', bob, 'b2'),
    event(tuesday, 'Order Completed', ada, 's2', euros('7.5')),
    event(wednesday, 'Order Completed', ada, 's3', euros('unknown')),
    event(yesterday, 'Page View', cleo, 'c1', { path: '/pricing', utm_source: 'ads' }),
    event(yesterday + 30 * second, 'Page View', cleo, 'c1', { path: '/' }),
    event(yesterday + 60 * second, 'Order Completed', cleo, 'c1', { amount: 100, currency: 'USD' }),
  ];
  for (const [path, body] of [
    [paths.track, { app_id: appId, events }],
    [paths.identify, { app_id: appId, user_id: '7', identity: 'ada' }],
    [paths.userProperties, { app_id: appId, identity: 'ada', properties: { plan: 'pro' } }],
  ] as const)
    assert.equal((await post(sluice.baseUrl, path, body)).text, '{}', path);
  await untilStored(sluice);
});

/** The answer of each query, by the first words of its comment. */
const answers: Readonly<Record<string, readonly (readonly unknown[])[]>> = {
  'Daily active users': [
    [day(monday), 2],
    [day(secondMonday), 1],
    [day(tuesday), 1],
    [day(wednesday), 1],
    [day(yesterday), 1],
  ],
  'New users by week': [
    [day(monday), 2],
    [day(mondayOf(yesterday)), 1],
  ],
  'A funnel': [
    ['Page View', 3],
    ['Added To Cart', 1],
    ['Order Completed', 1],
  ],
  Retention: [
    [day(monday), 0, 2],
    [day(monday), 1, 2],
    [day(monday), 2, 1],
    [day(mondayOf(yesterday)), 0, 1],
  ],
  'Revenue by day and currency, with the average order': [
    [day(monday), 'EUR', 12.5, 12.5],
    [day(tuesday), 'EUR', 7.5, 7.5],
    [day(wednesday), 'EUR', null, null],
    [day(yesterday), 'USD', 100, 100],
  ],
  'Top pages': [
    ['/', 1, 1],
    ['/pricing', 1, 1],
  ],
  'Sessions by day': [
    [day(monday), 2, 300, 0.5],
    [day(secondMonday), 1, 0, 1],
    [day(tuesday), 1, 0, 1],
    [day(wednesday), 1, 0, 1],
    [day(yesterday), 1, 60, 0],
  ],
  'Where buyers come from': [
    ['ads', 1, 1, 100],
    ['news', 1, 1, 20],
    ['', 1, 0, 0],
  ],
  'Revenue by a property that users have now': [
    ['', 1, 100],
    ['pro', 1, 20],
  ],
  'Who has gone': [['ada', 3, iso(wednesday).slice(0, 23).replace('T', ' ')]],
};

const page = readFileSync(new URL('../../src/clickhouse/queries.sql', import.meta.url), 'utf8');
const queries = new Map(
  [...page.matchAll(/^-- ([^.:]+).*\n(SELECT[^;]*);/gm)].map(([, name = '', sql = '']) => [name, sql]),
);

test('the page for analysts has ten queries', () => {
  assert.deepEqual([...queries.keys()], Object.keys(answers));
  assert.equal(page.match(/^SELECT/gm)?.length, 10);
});

for (const [name, sql] of queries) {
  test(`${name}: the query says what the events are`, async () => {
    assert.match(sql, /app_id = '42'/);
    assert.deepEqual(await ask(sql.replaceAll("app_id = '42'", `app_id = '${appId}'`)), answers[name]);
  });
}

test('Grafana, Metabase and DBeaver find tables and columns, and may set what they set with each query', async () => {
  const settings = { max_execution_time: '60', max_result_rows: '2000', result_overflow_mode: 'break' };
  const zone = { session_timezone: 'Europe/Berlin', readonly: '2' };
  const tables = await ask("SELECT name FROM system.tables WHERE database = 'sluice'", settings);
  assert.ok(tables.flat().includes('user_events'));
  const columns = await ask("SELECT name, type FROM system.columns WHERE table = 'events'", zone);
  assert.deepEqual(new Map(columns as [string, string][]).get('properties'), 'Map(String, String)');
});

async function ask(sql: string, settings: Readonly<Record<string, string>> = {}): Promise<unknown[][]> {
  const { origin, reader } = sluice.clickhouse;
  const parameters = new URLSearchParams({ database: 'sluice', ...settings });
  const text = await query(`${origin}/?${parameters}`, reader, `${sql} FORMAT JSONCompactEachRow`);
  return text
    .trim()
    .split('\n')
    .map((row) => JSON.parse(row));
}
