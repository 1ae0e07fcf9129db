// Identifying users. The first identity of a user_id counts, identities that would merge strangers are refused, and so is bad input. That
// merges have the same result in whatever order their records arrive is in identity-model.test.ts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { readMerged } from '../../src/privacy/suppression/merged-names.js';
import { createEnvironments } from '../harness/accounts.js';
import {
  type Answer,
  isAccepted,
  paths,
  post,
  readUserEvents,
  readUsers,
  type StoredUser,
  untilStored,
} from '../harness/ingestion.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const [strict = '', lenient = '', allowing = '', strangers = '', bounds = ''] = await createEnvironments(
  sluice,
  [[], ['--validation', 'lenient'], ['--allow-identity', 'Guest', '--allow-identity', '0'], [], []],
);

const identify = (body: object | string): Promise<Answer> => post(sluice.baseUrl, paths.identify, body);

function assertTaken(answer: Answer): void {
  assert.deepEqual([answer.status, answer.text], [200, '{}']);
}

async function identifyOk(appId: string, userId: string, identity: string): Promise<void> {
  assertTaken(await identify({ app_id: appId, user_id: userId, identity }));
}

async function trackOk(appId: string, user: object, event = 'Seen'): Promise<void> {
  assertTaken(await post(sluice.baseUrl, paths.track, { app_id: appId, event, ...user }));
}

async function usersOf(appId: string, prefix = ''): Promise<StoredUser[]> {
  await untilStored(sluice);
  return (await readUsers(sluice, appId)).filter(({ identity }) => identity.startsWith(prefix));
}

test('keeps the first identity of a user_id and answers 200 to later ones, which change nothing', async () => {
  await identifyOk(strict, '2001', 'first-ada');
  await untilStored(sluice);
  await identifyOk(strict, '2001', 'first-bob');
  await identifyOk(strict, '2001', 'first-ada');
  await identifyOk(strict, '2001', 'first-Ada');
  await trackOk(strict, { user_id: '2001' }, 'first: seen');

  assert.deepEqual(await usersOf(strict, 'first-'), [
    { identity: 'first-ada', user_ids: ['2001'], email: '', properties: {} },
  ]);
  const [event] = (await readUserEvents(sluice, strict)).filter(({ event }) => event === 'first: seen');
  assert.equal(event?.identity, 'first-ada');
});

test('keeps the first accepted identity, not the one with the earlier timestamp', async () => {
  const body = { app_id: strict, user_id: '2101' };
  assertTaken(await identify({ ...body, identity: 'time-ada', timestamp: '2026-02-01T00:00:00Z' }));
  assertTaken(await identify({ ...body, identity: 'time-bob', timestamp: '2020-02-01T00:00:00Z' }));
  assert.deepEqual(
    (await usersOf(strict, 'time-')).map(({ identity }) => identity),
    ['time-ada'],
  );
});

test('settles on one identity when many are given to a user_id at once', async () => {
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      identify({ app_id: strict, user_id: '2201', identity: `race-${n}` }),
    ),
  );
  assert.ok(answers.every(isAccepted));
  const before = await usersOf(strict, 'race-');
  assert.equal(before.length, 1);
  assert.deepEqual(before[0]?.user_ids, ['2201']);
  await identifyOk(strict, '2201', 'race-late');
  assert.deepEqual(await usersOf(strict, 'race-'), before);
});

test('merges many user_ids into one identity, and keeps strangers apart', async (context) => {
  await trackOk(strict, { user_id: '2303' });
  await trackOk(strict, { user_id: '2304' });
  for (const userId of ['2303', '2301', '9007199254740991', '0', '2302']) {
    await identifyOk(strict, userId, 'many-ada');
  }
  await identifyOk(strict, '2305', 'many-bob');
  await trackOk(strict, { identity: '2304' });

  assert.deepEqual(
    (await usersOf(strict, 'many-')).map(({ identity, user_ids }) => [identity, user_ids]),
    [
      ['many-ada', ['0', '2301', '2302', '2303', '9007199254740991']],
      ['many-bob', ['2305']],
    ],
  );
  const strangers = (await usersOf(strict)).filter(
    ({ identity, user_ids }) => identity === '2304' || user_ids.includes('2304'),
  );
  assert.deepEqual(strangers, [
    { identity: '', user_ids: ['2304'], email: '', properties: {} },
    { identity: '2304', user_ids: [], email: '', properties: {} },
  ]);

  // Anybody may identify any number of user_ids, so a look-up reads only the first ones. The user of another identity is not among them.
  await identifyOk(strict, '1', 'many-bob');
  await identifyOk(strict, '1', 'many-ada');
  await untilStored(sluice);
  const client = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
  context.after(() => client.close());
  const first = await readMerged(client, [strict], ['many-ada'], [], 2);
  assert.deepEqual(
    first.map(({ user_id }) => user_id),
    ['0', '2301'],
  );
});

/** What programs send when they have no identity: everything that one of the comparable services refuses. */
const strangerWords = [
  ...[
    'anon',
    'anonymous',
    'guest',
    'user',
    'unknown',
    'none',
    'nil',
    'null',
    'undefined',
    'nan',
    'n/a',
    'na',
  ],
  ...['true', 'false', 'id', 'identity', 'email', 'distinct_id', 'distinctid', 'not_authenticated', 'lmy47d'],
  ...['0', '-1', '[]', '{}', '<nil>', '[object Object]', '00000000-0000-0000-0000-000000000000'],
];

test('refuses identities under which strangers would be merged, which track stores as sent', async () => {
  const identities = [
    ...strangerWords,
    ...strangerWords.map((word) => word.toUpperCase()),
    ...['NaN', 'None', 'Null', 'Undefined', 'Anonymous', 'Guest', '[object object]'],
    ...strangerWords.map((word) => `'${word}'`),
    ...strangerWords.map((word) => `"${word}"`),
    ...[' null ', '\tuser\n', '" null "', "''", '""'],
    ...[' ', '   ', '\t\r\n', '\u00a0', '\u3000', ' '.repeat(255)],
  ];
  const unlike = ['nullo', 'user1', 'anonymous@example.com', 'nu ll', "o'null", '"null', '1', '-2', '00'];
  const answers = await Promise.all(
    identities.map((identity) => identify({ app_id: strangers, user_id: '3001', identity })),
  );
  const answersToUnlike = await Promise.all(
    unlike.map((identity, n) => identify({ app_id: strangers, user_id: String(3100 + n), identity })),
  );

  assert.deepEqual(
    answers.map(({ status, code, field }, n) => [identities[n], status, code, field]),
    identities.map((identity) => [identity, 400, 'merges_strangers', 'identity']),
  );
  assert.deepEqual(
    answersToUnlike.map(({ status }, n) => [unlike[n], status]),
    unlike.map((identity) => [identity, 200]),
  );
  const events = [...new Set(identities)].map((identity) => ({ event: 'Sent', identity }));
  assertTaken(await post(sluice.baseUrl, paths.track, { app_id: strangers, events }));
  await trackOk(strangers, { user_id: '3001' });
  await untilStored(sluice);
  const stored = await readUsers(sluice, strangers);
  assert.deepEqual(
    stored.map(({ identity }) => identity).sort(),
    [...new Set([...identities, ...unlike, ''])].sort(),
  );
  assert.deepEqual(
    stored.filter(({ user_ids }) => user_ids.includes('3001')),
    [{ identity: '', user_ids: ['3001'], email: '', properties: {} }],
    'the refused user_id is nobody',
  );
});

test('also refuses such an identity with as many blanks around it as it may have', async () => {
  const identities = [
    `null${' '.repeat(251)}`,
    `${' '.repeat(100)}Anonymous${'\t'.repeat(100)}`,
    `"${' '.repeat(253)}"`,
    `'${' '.repeat(100)}undefined'`,
  ];
  const answers = await Promise.all(
    identities.map((identity, n) => identify({ app_id: strict, user_id: String(3400 + n), identity })),
  );
  assert.deepEqual(
    answers.map(({ status, code }) => [status, code]),
    identities.map(() => [400, 'merges_strangers']),
  );
});

test('accepts such an identity only if the environment allows this value', async () => {
  const answers = await Promise.all(
    ['Guest', '0', 'guest', 'user', '"0"'].map((identity, n) =>
      identify({ app_id: allowing, user_id: String(3200 + n), identity }),
    ),
  );
  assert.deepEqual(
    answers.map(({ status, code }) => [status, code]),
    [
      [200, undefined],
      [200, undefined],
      [400, 'merges_strangers'],
      [400, 'merges_strangers'],
      [400, 'merges_strangers'],
    ],
  );
  assert.deepEqual(
    (await usersOf(allowing)).map(({ identity, user_ids }) => [identity, user_ids]),
    [
      ['0', ['3201']],
      ['Guest', ['3200']],
    ],
  );
});

test('also refuses such an identity in a lenient environment', async () => {
  const answer = await identify({ app_id: lenient, user_id: '3301', identity: 'null' });
  assert.deepEqual([answer.status, answer.code], [400, 'merges_strangers']);
  const number = await identify({ app_id: lenient, user_id: '3301', identity: 0 });
  assert.deepEqual([number.status, number.code], [400, 'merges_strangers']);
});

test('takes identity, user_id and timestamp up to their bounds, and refuses what track refuses', async () => {
  const fill = (length: number, character: string) => `ids-${character.repeat(length - 4)}`;
  const taken = [
    { identity: fill(255, 'x') },
    { identity: fill(255, '🧀') },
    { identity: 'ids-Bob', user_id: '9007199254740991' },
    { identity: 'ids-bob', user_id: '0' },
    { identity: 'ids-\u0000', timestamp: '1970-01-01T00:00:00Z' },
  ];
  // The fields have the schemas of track, whose tests try all values.
  const refused = [
    [{ identity: fill(256, '🧀') }, 'too_long', 'identity'],
    [{ identity: '' }, 'empty', 'identity'],
    [{ identity: 'ids-\ud83e' }, 'invalid_text', 'identity'],
    [{ identity: null }, 'invalid_type', 'identity'],
    [{ identity: undefined }, 'missing_field', 'identity'],
    [{ user_id: '01' }, 'invalid_user_id', 'user_id'],
    [{ user_id: '9007199254740992' }, 'invalid_user_id', 'user_id'],
    [{ user_id: 7 }, 'invalid_type', 'user_id'],
    [{ user_id: undefined }, 'missing_field', 'user_id'],
    [{ timestamp: '1969-12-31T23:59:59Z' }, 'timestamp_out_of_range', 'timestamp'],
    [{ timestamp: '2026-03-01T12:30Z' }, 'invalid_timestamp', 'timestamp'],
    [{ timestamp: 1_772_366_400_000 }, 'invalid_type', 'timestamp'],
  ] as const;
  const send = (fields: object, n: number) =>
    identify({ app_id: bounds, user_id: String(5000 + n), identity: `ids-bad ${n}`, ...fields });
  const answers = await Promise.all(taken.map(send));
  answers.forEach(assertTaken);
  const others = await Promise.all(refused.map(([fields], n) => send(fields, taken.length + n)));
  assert.deepEqual(
    others.map(({ status, code, field }) => [status, code, field]),
    refused.map(([, code, field]) => [400, code, field]),
  );
  assert.deepEqual(
    (await usersOf(bounds)).map(({ identity, user_ids }) => [identity, user_ids]).sort(),
    taken.map(({ identity, user_id }, n) => [identity, [user_id ?? String(5000 + n)]]).sort(),
  );
});

test('needs an environment, and ignores fields that it does not know', async () => {
  const base = { app_id: strict, user_id: '7001', identity: 'fields-ada' };
  const bodies: [object | string, number, string?][] = [
    [{ ...base, app_id: undefined }, 400, 'missing_field'],
    [{ ...base, app_id: Number(strict) }, 400, 'invalid_type'],
    [{ ...base, app_id: '0000000001' }, 400, 'unknown_app_id'],
    [[base], 400, 'invalid_type'],
    [`${JSON.stringify(base)}x`, 400, 'invalid_json'],
    ['', 400, 'invalid_json'],
  ];
  for (const [body, status, code] of bodies) {
    const answer = await identify(body);
    assert.deepEqual([answer.status, answer.code], [status, code], JSON.stringify(body));
  }
  assert.deepEqual(await usersOf(strict, 'fields-'), []);

  const unknown = { colour: 'green', properties: { email: 'a@b.c' }, session_id: 7, idempotency_key: '' };
  assertTaken(await identify({ ...base, ...unknown }));
  assert.deepEqual(await usersOf(strict, 'fields-'), [
    { identity: 'fields-ada', user_ids: ['7001'], email: '', properties: {} },
  ]);
});

test('accepts numbers for ids and times in a lenient environment', async () => {
  const bodies: [object, number][] = [
    [{ app_id: lenient, user_id: 8001, identity: 80_010 }, 200],
    [{ app_id: Number(lenient), user_id: '8002', identity: '80020' }, 200],
    [{ app_id: lenient, user_id: '8003', identity: '80030', timestamp: 1_772_366_400_000 }, 200],
    [{ app_id: lenient, user_id: '8004', identity: '80040', timestamp: '2026-03-01T12:30+0530' }, 200],
    [{ app_id: lenient, user_id: 8005.5, identity: '80050' }, 400],
    [{ app_id: lenient, user_id: -8006, identity: '80060' }, 400],
    [{ app_id: lenient, user_id: 2 ** 53, identity: '80070' }, 400],
    [{ app_id: lenient, user_id: '08008', identity: '80080' }, 400],
    [{ app_id: lenient, user_id: '8009', identity: `80090${'x'.repeat(251)}` }, 400],
  ];
  const answers = await Promise.all(bodies.map(([body]) => identify(body)));
  assert.deepEqual(
    answers.map(({ status }) => status),
    bodies.map(([, status]) => status),
  );
  assert.deepEqual(
    (await usersOf(lenient, '80')).map(({ identity, user_ids }) => [identity, user_ids]),
    [
      ['80010', ['8001']],
      ['80020', ['8002']],
      ['80030', ['8003']],
      ['80040', ['8004']],
    ],
  );
});
