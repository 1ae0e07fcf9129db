// Adding properties of one user and of many: what is accepted and refused, and that properties apply to all of the user's events, whenever
// they happened. Which value of a key counts is in identity-model.test.ts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
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
/** `crowded` is for requests with as many users as are allowed, `names` for identities. */
const [strict = '', lenient = '', crowded = '', names = ''] = await createEnvironments(sluice, [
  [],
  ['--validation', 'lenient'],
  [],
  [],
]);

const add = (body: object | string): Promise<Answer> => post(sluice.baseUrl, paths.userProperties, body);

/** Adds properties, which must be accepted. */
async function addOk(appId: string, identity: string, properties: object): Promise<void> {
  const answer = await add({ app_id: appId, identity, properties });
  assert.ok(isAccepted(answer), `${answer.status} ${answer.text}`);
}

/** The users of an environment whose identities begin with a prefix, by identity. */
async function usersOf(appId: string, prefix: string): Promise<Map<string, StoredUser>> {
  await untilStored(sluice);
  const users = await readUsers(sluice, appId);
  return new Map(
    users.filter(({ identity }) => identity.startsWith(prefix)).map((user) => [user.identity, user]),
  );
}

type Case = {
  readonly name: string;
  /** The properties as JSON text, so that a case can be something that `JSON.stringify` would not write. */
  readonly properties: string;
  readonly stored?: Readonly<Record<string, string>> | undefined;
  readonly code?: string;
};

/** Sends each case for a user of its own, then compares all answers and all that was stored. */
async function checkCases(appId: string, prefix: string, cases: readonly Case[]): Promise<void> {
  const answers = await Promise.all(
    cases.map(({ properties }, index) =>
      add(`{"app_id":"${appId}","identity":"${prefix}${index}","properties":${properties}}`),
    ),
  );
  const users = await usersOf(appId, prefix);
  assert.deepEqual(
    cases.map(({ name, code }, index) => ({
      name,
      status: answers[index]?.status,
      ...(code === undefined ? {} : { code: answers[index]?.code }),
      stored: users.get(`${prefix}${index}`)?.properties,
    })),
    cases.map(({ name, stored, code }) => ({
      name,
      status: stored === undefined ? 400 : 200,
      ...(code === undefined ? {} : { code }),
      stored,
    })),
  );
}

function manyProperties(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`key ${index}`, `${index}`]));
}

const thousand = manyProperties(1000);
const tooMany = manyProperties(1001);
const key1023 = 'k'.repeat(1023);
const emojiKey1023 = '🔑'.repeat(1023);
const value255 = 'v'.repeat(255);
const emojiValue255 = '🧀'.repeat(255);

test('creates a user without events, with properties and the e-mail address, and answers exactly {}', async () => {
  const answer = await add({
    app_id: strict,
    identity: 'new@example.com',
    properties: { email: 'ada@example.com', plan: 'pro', seats: 3, rate: 12.5 },
  });

  assert.deepEqual([answer.status, answer.text], [200, '{}']);
  assert.deepEqual(
    [...(await usersOf(strict, 'new@')).values()],
    [
      {
        identity: 'new@example.com',
        user_ids: [],
        email: 'ada@example.com',
        properties: { email: 'ada@example.com', plan: 'pro', seats: '3', rate: '12.5' },
      },
    ],
  );
});

test('accepts keys and values up to their bounds, and refuses what exceeds them without storing anything', () =>
  checkCases(strict, 'bounds-', [
    { name: 'no properties', properties: '{}', stored: {} },
    { name: 'an empty value', properties: '{"a":""}', stored: { a: '' } },
    { name: 'a number', properties: '{"a":-7.25}', stored: { a: '-7.25' } },
    { name: 'a value of 255', properties: `{"a":"${value255}"}`, stored: { a: value255 } },
    { name: 'a value of 256', properties: `{"a":"${value255}v"}`, code: 'too_long' },
    { name: '255 emoji', properties: `{"a":"${emojiValue255}"}`, stored: { a: emojiValue255 } },
    { name: '256 emoji', properties: `{"a":"${emojiValue255}🧀"}`, code: 'too_long' },
    {
      name: '255 letters of two code points each',
      properties: `{"a":"${'e\u0301'.repeat(255)}"}`,
      code: 'too_long',
    },
    { name: 'a key of 1023', properties: `{"${key1023}":"x"}`, stored: { [key1023]: 'x' } },
    { name: 'a key of 1024', properties: `{"${key1023}k":"x"}`, code: 'too_long' },
    { name: 'a key of 1023 emoji', properties: `{"${emojiKey1023}":"x"}`, stored: { [emojiKey1023]: 'x' } },
    { name: 'a key of 1024 emoji', properties: `{"${emojiKey1023}🔑":"x"}`, code: 'too_long' },
    { name: '1000 properties', properties: JSON.stringify(thousand), stored: thousand },
    { name: '1001 properties', properties: JSON.stringify(tooMany), code: 'too_many_properties' },
    { name: 'true', properties: '{"a":true}', code: 'invalid_type' },
    { name: 'null', properties: '{"a":null}', code: 'invalid_type' },
    { name: 'an array', properties: '{"a":["x","y"]}', code: 'invalid_type' },
    { name: 'an object', properties: '{"a":{"b":1}}', code: 'invalid_type' },
    { name: 'a number beyond all doubles', properties: '{"a":1e400}' },
    {
      name: 'one bad property among good ones',
      properties: '{"a":"x","b":false,"c":1}',
      code: 'invalid_type',
    },
    {
      name: 'a long value under a key with a line break',
      properties: `{"a\\nb":"${value255}v"}`,
      code: 'too_long',
    },
    { name: 'half a surrogate pair in a value', properties: '{"a":"\\ud83e"}', code: 'invalid_text' },
    { name: 'half a surrogate pair in a key', properties: '{"\\udd80":"a"}', code: 'invalid_text' },
    { name: 'key user_id', properties: '{"user_id":"7"}', code: 'reserved_property' },
    { name: 'key User_ID', properties: '{"User_ID":"7"}', stored: { User_ID: '7' } },
    {
      name: 'keys reserved for events',
      properties: '{"session_id":"s","screen_name":"n"}',
      stored: { session_id: 's', screen_name: 'n' },
    },
    {
      name: 'names of prototypes',
      properties: '{"__proto__":"p","constructor":"c","toString":1}',
      stored: JSON.parse('{"__proto__":"p","constructor":"c","toString":"1"}'),
    },
    {
      name: 'quotes, backslashes, zero bytes',
      properties: '{"\'\\"\\\\":"\\u0000\\t\\\\N","{x:String}":"%s"}',
      stored: { '\'"\\': '\u0000\t\\N', '{x:String}': '%s' },
    },
    { name: 'a dotted key', properties: '{"a.b":"x","a":"y"}', stored: { 'a.b': 'x', a: 'y' } },
    { name: 'properties that are null', properties: 'null', code: 'invalid_type' },
    { name: 'properties that are an array', properties: '[]', code: 'invalid_type' },
    { name: 'properties that are text', properties: '"a"', code: 'invalid_type' },
  ]));

test('accepts identities of 1 to 255 code points, byte for byte, and refuses others', async () => {
  const fill = (length: number, character: string) => `i${character.repeat(length - 1)}`;
  const taken = ['i', fill(255, 'x'), fill(255, '🧀'), 'i bob ', 'ie\u0301', 'ia\u0000b', "i' OR 1=1 --"];
  // The schema is that of track, whose tests try all values.
  const refused = [fill(256, 'x'), '', 'i\ud83e', null];
  const answers = await Promise.all(
    [...taken, ...refused].map((identity) => add({ app_id: names, identity, properties: { a: 1 } })),
  );

  assert.deepEqual(
    answers.map(({ status, code, field }) => code && [status, code, field]),
    [
      ...taken.map(() => undefined),
      [400, 'too_long', 'identity'],
      [400, 'empty', 'identity'],
      [400, 'invalid_text', 'identity'],
      [400, 'invalid_type', 'identity'],
    ],
  );
  assert.deepEqual([...(await usersOf(names, 'i')).keys()].sort(), [...taken].sort());
});

test('needs an environment and an identity, and ignores fields that it does not know', async () => {
  const base = { app_id: strict, identity: 'fields-a', properties: { a: 'x' } };
  const bodies: [object, number][] = [
    [{ ...base, identity: undefined }, 400],
    [{ ...base, identity: undefined, user_id: '7' }, 400],
    [{ ...base, app_id: undefined }, 400],
    [{ ...base, app_id: 7 }, 400],
    [{ ...base, app_id: '' }, 400],
    [{ ...base, app_id: '0000000001' }, 400],
    [{ ...base, app_id: '__proto__' }, 400],
    [[base], 400],
    [{ ...base, colour: 'green', timestamp: 7 }, 200],
    [{ ...base, identity: 'fields-b', properties: undefined }, 200],
  ];
  const answers = await Promise.all(bodies.map(([body]) => add(body)));

  assert.deepEqual(
    answers.map(({ status }) => status),
    bodies.map(([, status]) => status),
  );
  const users = await usersOf(strict, 'fields-');
  assert.deepEqual(
    [...users.values()].map(({ identity, properties, user_ids }) => ({ identity, properties, user_ids })),
    [
      { identity: 'fields-a', properties: { a: 'x' }, user_ids: [] },
      { identity: 'fields-b', properties: {}, user_ids: [] },
    ],
  );
});

test('fills the e-mail column from the key email only, with its latest value', async () => {
  await addOk(strict, 'mail-a', { Email: 'upper@example.com', EMAIL: 'loud@example.com' });
  await addOk(strict, 'mail-b', { email: 'old@example.com', Email: 'upper@example.com' });
  await addOk(strict, 'mail-b', { email: 'new@example.com' });

  const users = await usersOf(strict, 'mail-');
  assert.equal(users.get('mail-a')?.email, '');
  assert.deepEqual(users.get('mail-a')?.properties, {
    Email: 'upper@example.com',
    EMAIL: 'loud@example.com',
  });
  assert.equal(users.get('mail-b')?.email, 'new@example.com');
  assert.deepEqual(users.get('mail-b')?.properties, { email: 'new@example.com', Email: 'upper@example.com' });
});

test('accepts 1 to 1000 users in one request, and refuses 0, 1001, and anything but a list', async () => {
  const users = Array.from({ length: 1001 }, (_, index) => ({
    identity: `crowd-${index}`,
    properties: { index },
  }));
  const refused = await Promise.all([
    add({ app_id: crowded, users }),
    add({ app_id: crowded, users: [] }),
    add({ app_id: crowded, users: { 0: users[0] } }),
    add({ app_id: crowded, users: null }),
  ]);
  assert.deepEqual(
    refused.map(({ status, code }) => [status, code]),
    [
      [400, 'too_many_records'],
      [400, 'empty'],
      [400, 'invalid_type'],
      [400, 'invalid_type'],
    ],
  );

  const answer = await add({ app_id: crowded, users: users.slice(0, 1000) });
  assert.deepEqual([answer.status, answer.text], [200, '{}']);
  const stored = await usersOf(crowded, 'crowd-');
  assert.equal(stored.size, 1000);
  for (const { identity, properties } of users.slice(0, 1000)) {
    assert.deepEqual(stored.get(identity)?.properties, { index: String(properties.index) });
  }
});

test('stores the good users of a bulk request and names the bad ones; with strict=1 it stores none', async () => {
  const users = (prefix: string) => [
    { identity: `${prefix}0`, properties: { a: 1 } },
    { identity: `${prefix}1`, properties: { a: true } },
    'text',
    { identity: `${prefix}3`, properties: { user_id: '7' } },
    { identity: `${prefix}4`, properties: { a: 4 } },
    { properties: { a: 5 } },
  ];
  const mixed = await add({ app_id: strict, users: users('mixed-') });
  const whole = await post(sluice.baseUrl, `${paths.userProperties}?strict=1`, {
    app_id: strict,
    users: users('whole-'),
  });
  const allBad = await add({ app_id: strict, users: users('bad-').filter((_, index) => index % 4 !== 0) });

  assert.equal(mixed.status, 200);
  const report = JSON.parse(mixed.text) as {
    accepted: number;
    rejected: number;
    errors: { index: number; code: string; message: string }[];
  };
  assert.deepEqual([report.accepted, report.rejected], [2, 4]);
  assert.deepEqual(
    report.errors.map(({ index, code }) => [index, code]),
    [
      [1, 'invalid_type'],
      [2, 'invalid_type'],
      [3, 'reserved_property'],
      [5, 'missing_field'],
    ],
  );
  assert.ok(report.errors.every(({ message }) => message !== ''));
  assert.equal(whole.status, 400);
  assert.equal(allBad.status, 400);
  assert.deepEqual([...(await usersOf(strict, 'mixed-')).keys()], ['mixed-0', 'mixed-4']);
  assert.equal((await usersOf(strict, 'whole-')).size, 0);
  assert.equal((await usersOf(strict, 'bad-')).size, 0);
});

test('applies a user’s properties to past and future events, including those before its identification', async () => {
  const track = async (name: string, user: object) => {
    const answer = await post(sluice.baseUrl, paths.track, {
      app_id: strict,
      event: `merge ${name}`,
      ...user,
    });
    assert.ok(isAccepted(answer), answer.text);
  };
  await track('1 anonymous, before', { user_id: '4001' });
  await track('2 identified, before', { identity: 'merge-ada' });
  await track('3 stranger', { user_id: '4002' });
  await addOk(strict, 'merge-ada', { plan: 'free', city: 'Bern' });
  const identified = await post(sluice.baseUrl, paths.identify, {
    app_id: strict,
    user_id: '4001',
    identity: 'merge-ada',
  });
  assert.ok(isAccepted(identified), identified.text);
  await addOk(strict, 'merge-ada', { plan: 'pro' });
  await track('4 anonymous, after', { user_id: '4001' });
  await track('5 identified, after', { identity: 'merge-ada' });

  await untilStored(sluice);
  const events = (await readUserEvents(sluice, strict)).filter(({ event }) => event.startsWith('merge '));
  const ada = { identity: 'merge-ada', user_properties: { plan: 'pro', city: 'Bern' } };
  assert.deepEqual(events, [
    { event: 'merge 1 anonymous, before', user_id: '4001', ...ada },
    { event: 'merge 2 identified, before', user_id: null, ...ada },
    { event: 'merge 3 stranger', user_id: '4002', identity: '', user_properties: {} },
    { event: 'merge 4 anonymous, after', user_id: '4001', ...ada },
    { event: 'merge 5 identified, after', user_id: null, ...ada },
  ]);
});

test('mends what real producers send in a lenient environment', async () => {
  await checkCases(lenient, 'lenient-', [
    { name: 'booleans', properties: '{"a":true,"b":false}', stored: { a: 'true', b: 'false' } },
    { name: 'nulls', properties: '{"a":null,"b":"x"}', stored: { b: 'x' } },
    { name: 'arrays', properties: '{"a":["x",1,"y"],"b":[]}', stored: { a: 'x||1||y', b: '' } },
    { name: 'objects', properties: '{"a":{"b":{"c":1},"d":"x"}}', stored: { 'a.b.c': '1', 'a.d': 'x' } },
    { name: 'a long value', properties: `{"a":"${value255}vw"}`, stored: { a: value255 } },
    { name: 'a long value of emoji', properties: `{"a":"${emojiValue255}🧀"}`, stored: { a: emojiValue255 } },
    { name: 'a long array', properties: `{"a":["${value255}","y"]}`, stored: { a: value255 } },
    { name: 'key user_id', properties: '{"user_id":"7","a":"x"}', stored: { a: 'x' } },
    { name: '1001 properties', properties: JSON.stringify(tooMany), code: 'too_many_properties' },
  ]);
});

test('accepts numbers for identities and app_ids in a lenient environment, but never cuts an identity', async () => {
  const answers = await Promise.all([
    add({ app_id: lenient, identity: 70_001, properties: { a: 1 } }),
    add({ app_id: Number(lenient), identity: '70002', properties: { a: 1 } }),
    add({ app_id: lenient, identity: `70003${'x'.repeat(251)}`, properties: { a: 1 } }),
    add({ app_id: lenient, identity: 7.5, properties: { a: 1 } }),
    add({ app_id: lenient, identity: null, properties: { a: 1 } }),
  ]);
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200, 400, 400, 400],
  );
  assert.deepEqual([...(await usersOf(lenient, '7')).keys()], ['70001', '70002']);
});
