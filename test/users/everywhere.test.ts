// A look-up over all environments of an account: where a person is, under which names, since when, who looks alike, and which
// requests concern them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { lookUpEverywhere, namesEverywhere } from '../../src/insights/users/everywhere.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { isAccepted, paths, post, untilStored } from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { type ConsolePage, signedIn } from '../support/console.js';
import { sharedSluice } from '../support/sluice.js';

const ada = 'ada@example.com';
const hostile = `'; DROP TABLE events; --<img src=x>\n{"identity": "ada"}`;

type Found = {
  readonly names: readonly { identity?: string; user_id?: string; suppression: { suppressed: boolean } }[];
  readonly places: readonly {
    app_id: string;
    identity: string | null;
    user_ids: readonly string[];
    properties: number;
    events: number;
    first_seen: string | null;
    last_seen: string | null;
  }[];
};
type Requests = {
  readonly deletions: readonly { deletion_request_id: string; status: string; rows?: number }[];
  readonly exports: readonly string[];
};

async function of<Answer>(
  page: ConsolePage,
  account: TestAccount,
  path: string,
  user: object,
): Promise<Answer> {
  const { status, body } = await page.ask('POST', `/accounts/${account.accountId}/user${path}`, user);
  assert.equal(status, 200, JSON.stringify(body));
  return body as Answer;
}

async function send(path: string, app_id: string | undefined, record: object): Promise<void> {
  assert.ok(isAccepted(await post(sluice.baseUrl, path, { app_id, ...record })), JSON.stringify(record));
}

const at = (day: number) => new Date(Date.UTC(2026, 0, day)).toISOString();

const sluice = await sharedSluice();
const own = await createTestAccount(sluice, 'Own', ['Main Production', 'Staging', 'Empty']);
const other = await createTestAccount(sluice, 'Other');
const officer = await signedIn(sluice, 'officer@everywhere.example', 'privacy', own.accountId);
const stranger = await signedIn(sluice, 'stranger@everywhere.example', 'privacy', other.accountId);
const [main, staging] = own.appIds;
await send(paths.identify, main, { user_id: '7', identity: ada });
for (const [app_id, user, day] of [
  [main, { user_id: '7' }, 1],
  [main, { identity: ada }, 3],
  // This user_id is another person's here, since nobody has identified it in this environment.
  [staging, { user_id: '7' }, 5],
  [staging, { identity: ada }, 7],
  [staging, { identity: ada.toUpperCase() }, 8],
  [other.appIds[0], { identity: ada }, 9],
  [other.appIds[0], { identity: 'Ada@example.com' }, 9],
  [main, { identity: hostile }, 2],
] as const)
  await send(paths.track, app_id, { ...user, event: 'Seen', timestamp: at(day) });
await send(paths.userProperties, main, { identity: ada, properties: { plan: 'pro', city: 'Rome' } });
await untilStored(sluice);

test('a person is found by an identity in every environment that holds data, with the user_ids merged there', async () => {
  const { names, places } = await of<Found>(officer, own, '', { identity: ada });
  assert.deepEqual(names, [{ identity: ada, suppression: { suppressed: false } }]);
  assert.deepEqual(places, [
    {
      app_id: own.appIds[0],
      identity: ada,
      user_ids: ['7'],
      has_more_user_ids: false,
      properties: 2,
      events: 2,
      first_seen: at(1),
      last_seen: at(3),
    },
    {
      app_id: own.appIds[1],
      identity: ada,
      user_ids: [],
      has_more_user_ids: false,
      properties: 0,
      events: 1,
      first_seen: at(7),
      last_seen: at(7),
    },
  ]);
});

test('a user id means the person into whom it was merged, wherever they are, and itself where it was merged into nobody', async () => {
  for (const userId of ['7', 7]) {
    const { names, places } = await of<Found>(officer, own, '', { user_id: userId });
    assert.deepEqual(
      names.map(({ identity, user_id }) => identity ?? user_id),
      [ada, '7'],
    );
    assert.deepEqual(
      places.map(({ app_id, identity, user_ids, events }) => [app_id, identity, user_ids, events]),
      [
        [own.appIds[0], ada, ['7'], 2],
        [own.appIds[1], ada, [], 1],
        [own.appIds[1], null, ['7'], 1],
      ],
    );
  }
});

test('looking up a user id that is somebody else in each environment takes time in proportion to the environments', async () => {
  const names = Array.from({ length: 12 }, (_, at) => `e${at}`);
  const wide = await createTestAccount(sluice, 'Wide', names);
  for (const [at, app_id] of wide.appIds.entries())
    await send(paths.identify, app_id, { user_id: '7', identity: `person-${at}` });
  await untilStored(sluice);
  const clickhouse = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
  let asked = 0;
  const counting = new Proxy(clickhouse, {
    get(target, name) {
      if (name === 'exec') asked += 1;
      const value = Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  const known = await namesEverywhere(counting, wide.appIds, { userId: '7' });
  const places = await lookUpEverywhere(counting, wide.appIds, known);
  await clickhouse.close();
  assert.deepEqual(
    new Map(places.map(({ app_id, identity, user_ids }) => [app_id, [identity, ...user_ids]])),
    new Map(wide.appIds.map((app_id, at) => [app_id, [`person-${at}`, '7']])),
  );
  // Looking up every name in every environment would take several times as many.
  assert.ok(asked > names.length && asked < 250, `${asked} queries`);
});

test('similar identities of all environments are named once, and none of another account', async () => {
  // Only users that are found within a second are shown, so a busy machine may show none.
  const similar = await until(async () => {
    const found = await of<{ similar: string[] }>(officer, own, '/similar', { identity: ada });
    return found.similar.length > 0 ? found.similar : undefined;
  }, 'a similar identity is found');
  assert.deepEqual(similar, [ada.toUpperCase()]);
});

test('a hostile name is found as it is, and nothing else is', async () => {
  const { places } = await of<Found>(officer, own, '', { identity: hostile });
  assert.deepEqual(
    places.map(({ app_id, identity, events }) => [app_id, identity, events]),
    [[own.appIds[0], hostile, 1]],
  );
  assert.deepEqual((await of<Found>(officer, own, '', { identity: `${hostile} ` })).places, []);
});

test('only people with the right get an answer, and only about their own account', async () => {
  const viewer = await signedIn(sluice, 'viewer@everywhere.example', 'viewer', own.accountId);
  const administrator = await signedIn(sluice, 'admin@everywhere.example', 'administrator', own.accountId);
  for (const path of ['/user', '/user/similar', '/user/requests']) {
    const url = `/accounts/${own.accountId}${path}`;
    for (const page of [viewer, administrator])
      assert.equal((await page.ask('POST', url, { identity: ada })).status, 403);
    const { status, body } = await stranger.ask('POST', url, { identity: ada });
    assert.deepEqual([status, (body.err as { code: string }).code], [400, 'not_possible']);
    assert.equal((await officer.ask('POST', url, {})).status, 400);
  }
  const { places } = await of<Found>(stranger, other, '', { identity: ada });
  assert.deepEqual(
    places.map(({ app_id }) => app_id),
    [other.appIds[0]],
  );
});

test('the requests of a person are the ones that name or reach them: pending, complete, and exports that are kept', async () => {
  const url = (path: string) => `/accounts/${own.accountId}/${path}`;
  const submit = async (users: object[]) =>
    String((await officer.ask('POST', url('user_deletion'), { users })).body.deletion_request_id);
  const requestsOf = (user: object) => of<Requests>(officer, own, '/requests', user);
  const { body } = await officer.ask('POST', url('user_exports'), { users: [{ identity: hostile }] });
  await officer.ask('POST', url('user_exports'), { users: [{ identity: 'nobody' }] });
  assert.deepEqual(await requestsOf({ identity: hostile }), {
    account_id: own.accountId,
    deletions: [],
    exports: [body.user_export_id],
    has_more: false,
  });
  // The deletion reaches the merged identity too. It is found by that while it is pending, and afterwards only by the submitted name.
  const id = await submit([{ user_id: 7 }, { identity: 'nobody' }]);
  const pending = async () => (await requestsOf({ user_id: 7 })).deletions.length === 1;
  await until(pending, 'the request is found');
  await until(
    async () => (await requestsOf({ user_id: 7 })).deletions[0]?.status === 'complete',
    'the deletion is complete',
  );
  const { deletions } = await requestsOf({ user_id: 7 });
  // Two events and the identification and the properties of the one, an event of the other.
  assert.deepEqual(
    deletions.map(({ deletion_request_id, rows }) => [deletion_request_id, rows]),
    [[id, 5]],
  );
  assert.deepEqual((await requestsOf({ identity: hostile })).deletions, []);
  assert.deepEqual((await of<Requests>(stranger, other, '/requests', { user_id: 7 })).deletions, []);
  // The merged identity does not find it afterwards, since only the submitted names are kept, as hashes.
  assert.deepEqual((await requestsOf({ identity: ada })).deletions, []);
});
