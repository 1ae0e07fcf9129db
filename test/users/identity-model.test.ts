// Random sequences of requests, sent to two API processes in turn, against a model: users, their merges, their
// properties and their events come out of ClickHouse as the model says.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEnvironments, unlimited } from '../harness/accounts.js';
import { paths, post, untilStored } from '../harness/ingestion.js';
import fc from '../support/fast-check.js';
import { type EventOf, IdentityModel, type PropertiesOf } from '../support/identity-model.js';
import { testSeed } from '../support/seed.js';
import { sharedSluice } from '../support/sluice.js';

/** Sequences, each with identities of its own, sent at the same time. */
const runs = 20;
/** The most requests of a sequence. */
const requestsMax = 50;
const environments = 3;
/** How many user_ids a sequence has to choose from. */
const userIds = 6;

const sluice = await sharedSluice();
// Random sequences would run into the limits, which have tests of their own.
const appIds = await createEnvironments(
  sluice,
  Array.from({ length: environments }, () => unlimited),
);

type User = { readonly identity: number } | { readonly userId: number };

type Event = { readonly user: User; readonly key: number | undefined };

type Properties = { readonly identity: number; readonly properties: Record<string, string | number> };

/** One request. Users and keys are numbers that stand for another user and key in every sequence. */
type Request = { readonly environment: number } & (
  | { readonly kind: 'track'; readonly events: readonly Event[] }
  | { readonly kind: 'properties'; readonly users: readonly Properties[] }
  | { readonly kind: 'identify'; readonly userId: number; readonly identity: number }
);

/**
 * The identities of a sequence. Similar ones are different users, and one is also a user_id. Each begins or ends with the
 * sequence's number, so that no two sequences share an identity.
 */
const identityForms: readonly ((run: number) => string)[] = [
  (run) => `ada-${run}`,
  (run) => `Ada-${run}`,
  (run) => `ada-${run} `,
  (run) => `${run}-é`,
  (run) => `${run}-e\u0301`,
  (run) => `${run}-' OR identity != '\\`,
  (run) => `${run}-\u0000\n🧀`,
  (run) => userIdOf(run, 1),
];

/** The first sequence has the smallest possible user_ids, the last one the largest. */
function userIdOf(run: number, userId: number): string {
  if (run === runs - 1) return String(Number.MAX_SAFE_INTEGER - userId);
  return String(run * 1000 + userId);
}

function identityOf(run: number, identity: number): string {
  return identityForms[identity]?.(run) ?? '';
}

const identity = fc.nat({ max: identityForms.length - 1 });
const userId = fc.nat({ max: userIds - 1 });
const user: fc.Arbitrary<User> = fc.oneof(fc.record({ identity }), fc.record({ userId }));
const event: fc.Arbitrary<Event> = fc.record({
  user,
  key: fc.option(fc.nat({ max: 9 }), { nil: undefined }),
});
const properties: fc.Arbitrary<Properties> = fc.record({
  identity,
  properties: fc.dictionary(
    fc.constantFrom('email', 'Email', 'plan', 'a.b', '__proto__', 'ключ'),
    fc.oneof(fc.integer(), fc.string({ unit: 'grapheme', maxLength: 8 })),
    { maxKeys: 4, noNullPrototype: true },
  ),
});
const request: fc.Arbitrary<Request> = fc
  .tuple(
    fc.nat({ max: environments - 1 }),
    fc.oneof(
      fc.record({
        kind: fc.constant('track' as const),
        events: fc.array(event, { minLength: 1, maxLength: 4 }),
      }),
      fc.record({
        kind: fc.constant('properties' as const),
        users: fc.array(properties, { minLength: 1, maxLength: 4 }),
      }),
      fc.record({ kind: fc.constant('identify' as const), userId, identity }),
    ),
  )
  .map(([environment, rest]) => ({ environment, ...rest }));
const sequence = fc.array(request, { minLength: requestsMax / 2, maxLength: requestsMax, size: 'max' });

test('users, merges, properties and events are what a model of the requests says', async (t) => {
  const sequences = fc.sample(sequence, runs);
  const models = sequences.map(() => Array.from({ length: environments }, () => new IdentityModel()));
  await Promise.all(
    sequences.map(async (requests, run) => {
      for (const [position, request] of requests.entries()) {
        const model = models[run]?.[request.environment] ?? assert.fail();
        await send(run, position, request, model);
      }
    }),
  );
  await untilStored(sluice);

  for (const [environment, appId] of appIds.entries()) {
    const stored = await readEnvironment(appId);
    for (const [run, requests] of sequences.entries()) {
      const model = models[run]?.[environment] ?? assert.fail();
      const what = () => JSON.stringify(requests.filter((request) => request.environment === environment));
      const message = `seed ${testSeed}, sequence ${run}, environment ${environment}`;
      try {
        assert.deepEqual(ofRun(stored, run), expectationOf(model), message);
      } catch (error) {
        t.diagnostic(`${message}: ${what()}`);
        throw error;
      }
    }
    const everything = models.map((model) => expectationOf(model[environment] as IdentityModel));
    assert.deepEqual(
      countRows([stored]),
      countRows(everything),
      `environment ${environment} holds nothing that no sequence sent`,
    );
  }
});

/** Sends a request, which must be accepted, and carries it out in the model. */
async function send(run: number, position: number, request: Request, model: IdentityModel): Promise<void> {
  const baseUrl = sluice.api[(run + position) % sluice.api.length]?.baseUrl ?? '';
  const app_id = appIds[request.environment];
  const [path, body] = ((): [string, object] => {
    if (request.kind === 'track') {
      const events = request.events.map((event, index) => eventOf(run, `${run}:${position}:${index}`, event));
      for (const event of events) model.track(event);
      const sent = events.map(({ user, ...rest }) => ({ ...user, ...rest }));
      return [paths.track, sent.length === 1 ? { app_id, ...sent[0] } : { app_id, events: sent }];
    }
    if (request.kind === 'properties') {
      const users: PropertiesOf[] = request.users.map(({ identity, properties }) => ({
        identity: identityOf(run, identity),
        properties,
      }));
      for (const user of users) model.addProperties(user);
      return [paths.userProperties, users.length === 1 ? { app_id, ...users[0] } : { app_id, users }];
    }
    const user_id = userIdOf(run, request.userId);
    const identity = identityOf(run, request.identity);
    model.identify(user_id, identity);
    return [paths.identify, { app_id, user_id, identity }];
  })();
  const answer = await post(baseUrl, path, body);
  assert.deepEqual([answer.status, answer.text], [200, '{}'], JSON.stringify(body));
}

function eventOf(run: number, name: string, { user, key }: Event): EventOf {
  return {
    event: name,
    user:
      'identity' in user
        ? { identity: identityOf(run, user.identity) }
        : { user_id: userIdOf(run, user.userId) },
    ...(key === undefined ? {} : { idempotency_key: `${run}:${key}` }),
  };
}

/** What one environment holds, or the part of it that belongs to one sequence, each list in its order. */
type Contents = {
  readonly users: readonly { readonly identity: string; readonly user_ids: readonly string[] }[];
  readonly events: readonly { readonly event: string }[];
  /** From the table `user_identities`: the first identity of every user_id. */
  readonly identities: Readonly<Record<string, string>>;
  /** From the table `user_properties`: the last value of each key, for every identity. */
  readonly properties: Readonly<Record<string, unknown>>;
};

async function readEnvironment(appId: string): Promise<Contents> {
  const [row] = await sluice.rows<{
    users: string[];
    events: string[];
    identities: [string, string][];
    properties: [string, string, string][];
  }>(`WITH '${appId}' AS wanted SELECT
      (SELECT groupArray(toJSONString(tuple(
          identity, arrayMap(id -> toString(id), user_ids), email, mapKeys(properties), mapValues(properties))))
        FROM users WHERE app_id = wanted) AS users,
      (SELECT groupArray(toJSONString(tuple(
          event, identity, toString(user_id), mapKeys(user_properties), mapValues(user_properties))))
        FROM user_events WHERE app_id = wanted) AS events,
      (SELECT groupArray(tuple(id, first)) FROM (
          SELECT toString(user_id) AS id, argMin(identity, (segment, commit_number, row_number)) AS first
          FROM user_identities WHERE app_id = wanted GROUP BY user_id)) AS identities,
      (SELECT groupArray(tuple(identity, key, last)) FROM (
          SELECT identity, key, argMax(value, (segment, commit_number, row_number)) AS last
          FROM user_properties ARRAY JOIN mapKeys(properties) AS key, mapValues(properties) AS value
          WHERE app_id = wanted GROUP BY identity, key)) AS properties`);
  assert.ok(row);
  const properties: Record<string, Record<string, string>> = {};
  for (const [identity, key, last] of row.properties) {
    properties[identity] = { ...properties[identity], ...Object.fromEntries([[key, last]]) };
  }
  return sorted({
    users: row.users.map((text) => {
      const [identity, user_ids, email, keys, values] = JSON.parse(text);
      return { identity, user_ids, email, properties: asObject(keys, values) };
    }),
    events: row.events.map((text) => {
      const [event, identity, user_id, keys, values] = JSON.parse(text);
      return { event, identity, user_id, user_properties: asObject(keys, values) };
    }),
    identities: Object.fromEntries(row.identities),
    properties,
  });
}

function asObject(keys: string[], values: string[]): Record<string, string> {
  assert.equal(new Set(keys).size, keys.length, `a key appears twice: ${keys.join(', ')}`);
  return Object.fromEntries(keys.map((key, index) => [key, values[index] ?? '']));
}

function expectationOf(model: IdentityModel): Contents {
  const properties = Object.entries(model.propertiesByIdentity());
  return sorted({
    users: model.users(),
    events: model.events(),
    identities: model.identities(),
    properties: Object.fromEntries(properties.filter(([, values]) => Object.keys(values).length > 0)),
  });
}

function ofRun(contents: Contents, run: number): Contents {
  const identities = new Set(identityForms.map((_, index) => identityOf(run, index)));
  const ids = new Set(Array.from({ length: userIds }, (_, index) => userIdOf(run, index)));
  return {
    users: contents.users.filter(
      ({ identity, user_ids }) => identities.has(identity) || user_ids.some((id) => ids.has(id)),
    ),
    events: contents.events.filter(({ event }) => event.startsWith(`${run}:`)),
    identities: Object.fromEntries(Object.entries(contents.identities).filter(([id]) => ids.has(id))),
    properties: Object.fromEntries(
      Object.entries(contents.properties).filter(([identity]) => identities.has(identity)),
    ),
  };
}

function sorted(contents: Contents): Contents {
  const text = (value: { identity?: string; user_ids?: readonly string[]; event?: string }) =>
    JSON.stringify([value.event, value.identity, value.user_ids]);
  const byText = (a: object, b: object) => (text(a) < text(b) ? -1 : 1);
  return {
    ...contents,
    users: [...contents.users].sort(byText),
    events: [...contents.events].sort(byText),
  };
}

function countRows(all: readonly Contents[]): Record<string, number> {
  const sum = (count: (contents: Contents) => number) =>
    all.reduce((total, contents) => total + count(contents), 0);
  return {
    users: sum(({ users }) => users.length),
    events: sum(({ events }) => events.length),
    identities: sum(({ identities }) => Object.keys(identities).length),
    properties: sum(({ properties }) => Object.keys(properties).length),
  };
}
