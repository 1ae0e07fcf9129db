// What a deletion deletes: everything of its targets that was acknowledged before it, in every place, and nothing else. Every record that
// is sent here says whether it has to go or to stay.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { deletionStates } from '../../src/contract/deletion-states.js';
import {
  ConcurrentUpdate,
  pendingMember,
  readDeletion,
  updateDeletion,
} from '../../src/privacy/deletion/request.js';
import { targetTable, userTables } from '../../src/privacy/deletion/user-tables.js';
import { registryKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { untilKnown } from '../harness/accounts.js';
import { type ClickHouseGate, inserts, startClickHouseGate } from '../harness/clickhouse-gate.js';
import {
  administer,
  assertExact,
  dumpTables,
  hurryRounds,
  readFound,
  readStatus,
  send,
  sendEvents,
  sendIdentify,
  sendProperties,
  showDeletion,
  storeFailedRow,
  submitAccepted,
  submitNow,
  type User,
  untilComplete,
  untilStored,
  withoutRounds,
  writeHistory,
} from '../harness/deletion.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { withRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import { deletionWorld } from '../support/deletion-world.js';
import { test } from '../support/test.js';
import { filesWith, keysWith } from '../support/traces.js';

const { sluice, worker, account, stranger, token, strangerToken, main, staging, elsewhere } =
  await deletionWorld();
/** The marker of the users whom the first deletion removes, and what the last test checks. */
let marker: string;

const clickhouseFiles = () => filesWith(sluice.clickhouse.dir, [marker]);
const redisFiles = () => filesWith(join(sluice.redis.dir, 'appendonlydir'), [marker]);

test('deletes a user in every environment of the account, and keeps everybody else byte for byte', async () => {
  const history = await writeHistory(sluice, account, stranger, 'ada@example.com');
  marker = history.marker;
  await untilStored(sluice);
  const before = await dumpTables(sluice);
  assert.notDeepEqual(clickhouseFiles(), [], 'the marker can be found in a file');
  assert.notDeepEqual(redisFiles(), [], 'the marker can be found in a file');

  const requestId = await submitNow(sluice, token, history.users);
  const accepted = await history.returnToService();
  await untilComplete(sluice, token, requestId);
  assert.deepEqual(await keysWith(sluice, marker), [], 'Redis holds the identity');

  await untilStored(sluice);
  assertExact(before, await dumpTables(sluice), history.identificationsToGo, accepted);
});

test('keeps evidence of what was found and how it went, without any identity', async () => {
  const history = await writeHistory(sluice, account, stranger, 'evidence@example.com');
  const requestId = await submitNow(sluice, token, history.users);
  await untilComplete(sluice, token, requestId);
  assert.deepEqual(await readFound(sluice, requestId), history.found);
  const evidence = await showDeletion(sluice, requestId);
  assert.equal(evidence.targets, 3);
  assert.equal(evidence.status, 'complete');
  assert.equal(evidence.app_id, main);
  const tables = evidence.mutations.map(({ table }) => table);
  const reached = new Set(Object.keys(history.found).map((place) => place.split(' ')[1]));
  assert.deepEqual(
    [...tables].sort(),
    [...reached].sort(),
    'one mutation per table with rows of the targets',
  );
  for (const { table, mutation_id } of evidence.mutations) {
    const [known] = await sluice.rows<{ is_done: number }>(
      `SELECT is_done FROM system.mutations WHERE table = '${table}' AND mutation_id = '${mutation_id}'`,
    );
    assert.equal(Number(known?.is_done), 1, `${mutation_id} of ${table}`);
  }
  const times = [evidence.submitted_at, evidence.verified_at, evidence.completed_at];
  assert.deepEqual([...times].sort(), times);
  const text = JSON.stringify(await sluice.admin('deletions', 'show', requestId));
  for (const id of [history.marker, 'evidence@example.com']) assert.ok(!text.includes(id));
  assert.deepEqual(evidence.left, []);
});

test('knows every table of ClickHouse that has a column for users', async () => {
  const rows = await sluice.rows<{ table: string }>(
    `SELECT DISTINCT table FROM system.columns WHERE database = currentDatabase()
      AND (name ILIKE '%user%' OR name ILIKE '%identit%' OR name IN ('row', 'anonymous_id'))
      AND table IN (SELECT name FROM system.tables WHERE database = currentDatabase() AND engine != 'View')`,
  );
  const tables = rows.map(({ table }) => table).filter((table) => !table.startsWith('deletion_round_'));
  assert.deepEqual(tables.sort(), [...userTables, targetTable].sort());
});

/** Identities that a careless comparison or statement confuses with others. */
const awkward = [
  '7',
  '07',
  'Bob',
  'caf\u00e9',
  "o'brien",
  "' OR 1=1 --",
  'back\\slash\\',
  "\\' OR '1'='1",
  'nul\0byte',
  'line\nbreak\ttab',
  '{identity:String}',
  '{requestId:String}',
  '%',
  '_',
  '../../etc/passwd',
  'a/b',
  ' blank ',
  '"quoted"',
  '\u{1f600}'.repeat(255),
  'i1000000001 x',
  '\\N',
  'NULL',
] as const;

/** Identities that must stay when the awkward ones go. */
const lookalikes = [
  '70',
  '007',
  '7 ',
  'bob',
  'BOB',
  'cafe\u0301',
  'cafe',
  "o''brien",
  "o\\'brien",
  'back\\slash',
  'back\\\\slash\\\\',
  'nul',
  'nul\0',
  'nul\0byte\0',
  'line break tab',
  'x',
  'anybody',
  'blank',
  ' blank',
  'blank ',
  'quoted',
  '\u{1f600}'.repeat(254),
  `${'\u{1f600}'.repeat(254)}\u{1f601}`,
  '1=1',
] as const;

/** One case of a deletion. All cases share a round, since a round costs more than its requests. */
type Case = {
  readonly name: string;
  /** Sends records of users whom no other case has; settles when they are accepted. */
  readonly prepare: () => Promise<void>;
  /** The users of each of its requests. */
  readonly requests: readonly (readonly User[])[];
  readonly identificationsToGo?: readonly string[];
  /** What the evidence of each request says. */
  readonly found?: readonly Readonly<Record<string, number>>[];
};

const cases = (): readonly Case[] => [
  {
    name: 'compares identities by their bytes, whatever they look like',
    prepare: async () => {
      const users = (identities: readonly string[]) => identities.map((identity) => ({ identity }));
      await sendEvents(sluice, main, 'go', users(awkward));
      await sendEvents(sluice, staging, 'go', [...users(awkward), { user_id: '70' }]);
      await sendEvents(sluice, main, 'go', [{ user_id: '70' }]);
      for (const appId of [main, staging]) {
        await sendEvents(sluice, appId, 'stay', [
          ...users(lookalikes),
          { user_id: '7' },
          { user_id: '700' },
          { user_id: '0' },
        ]);
      }
      await sendEvents(sluice, elsewhere, 'stay', [...users(awkward), { user_id: '70' }]);
      await sendProperties(sluice, main, 'go', awkward);
      await sendProperties(sluice, main, 'stay', lookalikes);
    },
    requests: [[...awkward.map((identity) => ({ identity })), { user_id: 70 }]],
  },
  {
    name: 'takes users named twice, unknown users and both names of one user',
    prepare: async () => {
      await sendIdentify(sluice, main, '8001', 'twice');
      await sendEvents(sluice, main, 'go', [{ identity: 'twice' }, { user_id: '8001' }]);
    },
    requests: [
      [
        { identity: 'twice' },
        { identity: 'twice' },
        { user_id: 8001 },
        { user_id: '8001' },
        { identity: 'never seen' },
      ],
      [{ identity: 'never seen' }, { user_id: 9007199254740991 }],
    ],
    identificationsToGo: [`${main} 8001 twice`],
    found: [{ [`${main} stored_events`]: 2, [`${main} stored_user_identities`]: 1 }, {}],
  },
  {
    name: 'takes the whole merged user by any of its names, in each environment as merged there',
    prepare: async () => {
      await sendIdentify(sluice, main, '8101', 'merged');
      await sendIdentify(sluice, main, '8102', 'merged');
      await sendIdentify(sluice, main, '8103', 'another');
      await sendIdentify(sluice, staging, '8101', 'another');
      await sendIdentify(sluice, staging, '8103', 'merged');
      const users = [{ user_id: '8101' }, { user_id: '8102' }, { identity: 'merged' }];
      await sendEvents(sluice, main, 'go', users);
      await sendEvents(sluice, main, 'stay', [{ user_id: '8103' }, { identity: 'another' }]);
      // In this environment the named user_id belongs to another identity.
      await sendEvents(sluice, staging, 'go', [{ user_id: '8101' }, { identity: 'another' }]);
      const others = [{ user_id: '8103' }, { user_id: '8102' }, { identity: 'merged' }];
      await sendEvents(sluice, staging, 'stay', others);
    },
    requests: [[{ user_id: '8101' }]],
    identificationsToGo: [`${main} 8101 merged`, `${main} 8102 merged`, `${staging} 8101 another`],
  },
  {
    name: 'does not let an identification that was ignored attach a deleted user to another one',
    prepare: async () => {
      await sendIdentify(sluice, main, '8201', 'first identity');
      await sendIdentify(sluice, main, '8201', 'second identity');
      await sendEvents(sluice, main, 'go', [{ user_id: '8201' }, { identity: 'first identity' }]);
      await sendEvents(sluice, main, 'stay', [{ identity: 'second identity' }]);
    },
    requests: [[{ identity: 'first identity' }]],
    identificationsToGo: [`${main} 8201 first identity`, `${main} 8201 second identity`],
  },
  {
    name: 'reaches an environment that was added after the token was issued',
    prepare: async () => {
      const { app_id: appId } = await administer<{ app_id: string }>(
        sluice,
        'POST',
        `/accounts/${account.accountId}/environments`,
        { name: 'Added later' },
      );
      await untilKnown(sluice, appId);
      await sendEvents(sluice, appId, 'go', [{ identity: 'newcomer' }]);
    },
    requests: [[{ identity: 'newcomer' }]],
  },
];

test('deletes the users whom its requests name, and nobody else', async (context) => {
  const all = cases();
  for (const { prepare } of all) await prepare();
  await untilStored(sluice);
  const before = await dumpTables(sluice);
  worker.sigstop();
  const submitted: string[][] = [];
  for (const { requests } of all) {
    const ids: string[] = [];
    for (const users of requests) ids.push(await submitAccepted(sluice, token, users));
    submitted.push(ids);
  }
  await hurryRounds(sluice);
  worker.sigcont();
  for (const id of submitted.flat()) await untilComplete(sluice, token, id);
  const after = await dumpTables(sluice);
  const gone = new Set(all.flatMap(({ identificationsToGo = [] }) => identificationsToGo));
  assertExact(before, after, gone);
  for (const [at, { name, found = [] }] of all.entries()) {
    await context.test(name, async () => {
      for (const [which, counts] of found.entries()) {
        assert.deepEqual(await readFound(sluice, submitted[at]?.[which] ?? ''), counts);
      }
    });
  }

  await sendEvents(sluice, main, 'stay', [{ user_id: '8201' }]);
  await untilStored(sluice);
  assertExact(before, await dumpTables(sluice), gone, { stored_events: 1 });
  const users = await sluice.rows<{ identity: string; user_ids: unknown[] }>(
    `SELECT identity, arrayMap(id -> toString(id), user_ids) AS user_ids FROM users
      WHERE app_id = '${main}' AND (identity = 'second identity' OR has(user_ids, '8201')) ORDER BY identity`,
  );
  assert.deepEqual(users, [
    { identity: '', user_ids: ['8201'] },
    { identity: 'second identity', user_ids: [] },
  ]);
});

test('a deletion waits for records acknowledged before it, and does not reach those that came after its answer', async () => {
  await sendIdentify(sluice, main, '8301', 'backlog');
  await untilStored(sluice);
  worker.sigstop();
  const before = await dumpTables(sluice);
  // These are acknowledged but not stored when the request comes.
  await sendEvents(sluice, main, 'go', [{ identity: 'backlog' }, { user_id: '8301' }, { user_id: '8302' }]);
  await sendIdentify(sluice, main, '8302', 'backlog');
  await sendProperties(sluice, main, 'go', ['backlog']);
  await sendEvents(sluice, main, 'stay', [{ user_id: '8303' }, { identity: 'bystander' }]);
  const requestId = await submitNow(sluice, token, [{ identity: 'backlog' }]);
  await sendIdentify(sluice, main, '8303', 'backlog');
  await sendIdentify(sluice, main, '8301', 'bystander');
  await sendEvents(sluice, main, 'stay', [{ identity: 'backlog' }, { user_id: '8301' }, { user_id: '8302' }]);
  for (let poll = 0; poll < 5; poll += 1) {
    const { submitted_at, ...answered } = JSON.parse((await readStatus(sluice, token, requestId)).text);
    assert.ok(submitted_at);
    assert.deepEqual(answered, {
      deletion_request_id: requestId,
      status: 'pending',
      state: 'submitted',
      message: deletionStates.submitted,
      users: 1,
    });
  }
  worker.sigcont();
  await untilComplete(sluice, token, requestId);
  await untilStored(sluice);
  const gone = new Set([`${main} 8301 backlog`, `${main} 8302 backlog`]);
  const later = { stored_events: 5, stored_user_identities: 2 };
  assertExact(before, await dumpTables(sluice), gone, later);
  assert.equal((await readFound(sluice, requestId))[`${main} stored_events`], 3);
});

test('keeps pending requests in the order in which they came, also when the clock of Redis was set back', async () => {
  const memberOf = (requestId: string) => `${account.accountId} ${requestId}`;
  worker.sigstop();
  try {
    await withRedis(sluice, async (redis) => {
      const scoreOf = async (requestId: string) =>
        Number(await redis.zscore(registryKeys.pendingDeletions, memberOf(requestId)));
      const first = await submitNow(sluice, token, [{ identity: 'before the clock was set back' }]);
      // The score that the request would have if the clock had been an hour ahead when it was submitted.
      const ahead = (await scoreOf(first)) + 3_600_000;
      await redis.zadd(registryKeys.pendingDeletions, 'XX', ahead, memberOf(first));
      const second = await submitNow(sluice, token, [{ identity: 'after the clock was set back' }]);
      const third = await submitAccepted(sluice, strangerToken, [{ identity: 'of another account' }]);
      assert.deepEqual(await redis.zrange(registryKeys.pendingDeletions, '0', '-1'), [
        memberOf(first),
        memberOf(second),
        `${stranger.accountId} ${third}`,
      ]);
      assert.ok((await scoreOf(second)) > ahead, 'no two requests have the same score');
      worker.sigcont();
      for (const requestId of [first, second]) await untilComplete(sluice, token, requestId);
      await untilComplete(sluice, strangerToken, third);
    });
  } finally {
    worker.sigcont();
  }
});

test('shares one mutation among requests, each up to its own fence', async () => {
  worker.sigstop();
  const before = await dumpTables(sluice);
  const users = ['early', 'late', 'both'].map((identity) => ({ identity: `fence ${identity}` }));
  const [early, late, both] = users as [User, User, User];
  await sendEvents(sluice, main, 'go', users as { identity: string }[]);
  const first = await submitNow(sluice, token, [early, both]);
  await sendEvents(sluice, main, 'stay', [{ identity: 'fence early' }]);
  await sendEvents(sluice, main, 'go', [{ identity: 'fence late' }, { identity: 'fence both' }]);
  const second = await submitNow(sluice, token, [late]);
  await sendEvents(sluice, main, 'stay', [{ identity: 'fence early' }, { identity: 'fence late' }]);
  await sendEvents(sluice, main, 'go', [{ identity: 'fence both' }]);
  const third = await submitNow(sluice, token, [both]);
  await sendEvents(sluice, main, 'stay', users as { identity: string }[]);
  // No round starts before all three requests can take part.
  await withoutRounds(sluice, async () => {
    worker.sigcont();
    await untilStored(sluice);
  });
  const requests = [first, second, third];
  for (const requestId of requests) await untilComplete(sluice, token, requestId);
  await untilStored(sluice);
  assertExact(before, await dumpTables(sluice), new Set(), { stored_events: 6 });
  const counts = await Promise.all(requests.map((requestId) => readFound(sluice, requestId)));
  assert.deepEqual(
    counts.map((found) => found[`${main} stored_events`]),
    [2, 2, 3],
  );
  const mutations = await Promise.all(
    requests.map(async (requestId) => (await showDeletion(sluice, requestId)).mutations),
  );
  assert.deepEqual(mutations[1], mutations[0]);
  assert.deepEqual(mutations[2], mutations[0]);
});

test('deletes a user who came back again, and stores no repeat of a deleted event', async () => {
  const user = { identity: 'returning' };
  const event = {
    app_id: main,
    event: 'Paid',
    ...user,
    idempotency_key: 'order 1',
    properties: { fate: 'go' },
  };
  const before = await dumpTables(sluice);
  await send(sluice, '/api/track', event);
  const first = await submitNow(sluice, token, [user]);
  await untilComplete(sluice, token, first);
  await send(sluice, '/api/track', event);
  await untilStored(sluice);
  // Once Redis has forgotten the key, only the index can know it, and its row is gone.
  await withRedis(sluice, forgetKeys);
  await send(sluice, '/api/track', event);
  await untilStored(sluice);
  assertExact(before, await dumpTables(sluice), new Set());
  await sendEvents(sluice, main, 'go', [user]);
  const second = await submitNow(sluice, token, [user]);
  const again = await submitNow(sluice, token, [user]);
  for (const requestId of [second, again]) await untilComplete(sluice, token, requestId);
  assert.equal(new Set([first, second, again]).size, 3);
  assertExact(before, await dumpTables(sluice), new Set());
});

test('brings nothing back when a worker that was stopped before its insert continues after the deletion', async () => {
  const before = await dumpTables(sluice);
  const gate: ClickHouseGate = await startClickHouseGate(sluice.clickhouseUrl);
  worker.sigstop();
  const zombie = await sluice.addWorker({ CLICKHOUSE_URL: gate.url });
  gate.hold(inserts);
  try {
    await sendEvents(sluice, main, 'go', [{ identity: 'undead' }, { identity: 'undead' }]);
    await until(() => gate.held.length > 0, 'the worker wants to insert');
    zombie.sigstop();
    worker.sigcont();
    await untilStored(sluice);
    const requestId = await submitNow(sluice, token, [{ identity: 'undead' }]);
    await untilComplete(sluice, token, requestId);
    assertExact(before, await dumpTables(sluice), new Set());
    const held = gate.held.length;
    zombie.sigcont();
    gate.release();
    assert.ok(held > 0, 'the insert was held all the time');
    // ClickHouse has carried out the held insert too when this worker's next insert is stored.
    worker.sigstop();
    await sendEvents(sluice, main, 'stay', [{ identity: 'alive' }]);
    await untilStored(sluice);
    assertExact(before, await dumpTables(sluice), new Set(), { stored_events: 1 });
  } finally {
    worker.sigcont();
    await zombie.stop();
    await gate.close();
  }
});

test('leaves nothing behind when a worker that was stopped before it kept the targets goes on afterwards', async () => {
  const gate = await startClickHouseGate(sluice.clickhouseUrl);
  worker.sigstop();
  const zombie = await sluice.addWorker({ CLICKHOUSE_URL: gate.url });
  gate.hold(({ sql }) => sql.trimStart().startsWith(`INSERT INTO ${targetTable}`));
  const identity = randomBytes(24).toString('base64url');
  try {
    const requestId = await submitNow(sluice, token, [{ identity }]);
    await until(() => gate.held.length > 0, 'the worker keeps the targets');
    zombie.sigstop();
    worker.sigcont();
    await untilComplete(sluice, token, requestId);
    zombie.sigcont();
    gate.release();
    const next = await submitNow(sluice, token, [{ identity: 'next' }]);
    await untilComplete(sluice, token, next);
    await until(
      async () =>
        (await sluice.rows(`SELECT 1 FROM ${targetTable} WHERE identity = '${identity}'`)).length === 0,
      // The worker looks twice a minute for targets that no request needs.
      { deadlineMs: 120_000, what: 'the target is gone from the kept targets', everyMs: 200 },
    );
  } finally {
    worker.sigcont();
    await zombie.stop();
    await gate.close();
  }
});

test('an overtaken round writes nothing about a request that another round has verified', async () => {
  worker.sigstop();
  try {
    const requestId = await submitNow(sluice, token, [{ identity: 'overtaken' }]);
    await withRedis(sluice, async (redis) => {
      const early = await readDeletion(redis, requestId);
      assert.ok(early);
      // That other round then purges the targets, and a request that is not verified cannot go on without them.
      const found = [{ app_id: main, table: 'stored_events', rows: 7 }];
      const changes = { resolved: true, found, verified_at: new Date().toISOString() };
      const verified = await updateDeletion(redis, early, changes);
      await assert.rejects(
        updateDeletion(redis, early, { resolved: true, state: 'deleting' }),
        ConcurrentUpdate,
      );
      // A paused worker may still keep the targets that it read earlier.
      const keys = [
        registryKeys.deletions,
        registryKeys.pendingDeletions,
        registryKeys.uncopied,
        registryKeys.deletionsAwaitingTargetCopy,
      ];
      await runScript(redis, scripts.keepDeletionTargets, keys, [requestId, pendingMember(early)]);
      assert.deepEqual(await readDeletion(redis, requestId), { targets_kept: true, ...verified });
    });
    worker.sigcont();
    await untilComplete(sluice, token, requestId);
    assert.deepEqual(await readFound(sluice, requestId), { [`${main} stored_events`]: 7 });
  } finally {
    worker.sigcont();
  }
});

test('completes many requests with at most 20 mutations per table and minute', async () => {
  const before = await dumpTables(sluice);
  const users = Array.from({ length: 150 }, (_, number) => ({ identity: `one of many ${number}` }));
  await sendEvents(sluice, main, 'go', users);
  const countOf = async () => {
    const rows = await sluice.rows<{ table: string; count: string }>(
      'SELECT table, uniqExact(mutation_id) AS count FROM system.mutations WHERE database = currentDatabase() GROUP BY table',
    );
    return new Map(rows.map(({ table, count }) => [table, Number(count)]));
  };
  const mutationsBefore = await countOf();
  const started = performance.now();
  const requestIds: string[] = [];
  for (let at = 0; at < users.length; at += 50) {
    const batch = users.slice(at, at + 50).map((user) => submitAccepted(sluice, token, [user]));
    requestIds.push(...(await Promise.all(batch)));
  }
  for (const requestId of requestIds) await untilComplete(sluice, token, requestId);
  // A very slow machine takes several minutes, and each may have its mutations.
  const minutes = Math.ceil((performance.now() - started) / 60_000);
  for (const [table, count] of await countOf()) {
    const made = count - (mutationsBefore.get(table) ?? 0);
    assert.ok(made <= 20 * minutes, `${table} had ${made} mutations in ${minutes} minutes`);
  }
  assertExact(before, await dumpTables(sluice), new Set());
});

test('an administrator who sends a failed row of a target again does not save it from its deletion', async () => {
  const identity = 'failed row';
  const row = JSON.stringify([
    main,
    '0123456789abcdef0123456789abcdef',
    'Seen',
    null,
    identity,
    '',
    null,
    { fate: 'go' },
    1,
    1,
    1,
    '1.000',
  ]);
  const before = await dumpTables(sluice);
  await storeFailedRow(sluice, main, 'go', { identity, row: `${row}\n` });
  // A round that has not quite ended would refuse a retry for as long as its worker is stopped.
  await withRedis(sluice, (redis) =>
    until(async () => (await redis.exists(registryKeys.maintenanceLock)) === 0, 'no round runs'),
  );
  worker.sigstop();
  const requestId = await submitNow(sluice, token, [{ identity }]);
  await administer(sluice, 'POST', '/failed/retry', {});
  worker.sigcont();
  await untilComplete(sluice, token, requestId);
  await untilStored(sluice);
  const rows = await sluice.rows(`SELECT segment FROM stored_events WHERE identity = '${identity}'`);
  assert.deepEqual(rows, [], 'a record from before the submission came back');
  assertExact(before, await dumpTables(sluice), new Set());
});

test('a deletion waits for a failed row that is being sent again, and deletes it where it arrives', async () => {
  const identity = 'sent again';
  // So the fence is above the row's segment, whatever else this service has stored.
  await sendEvents(sluice, main, 'stay', [{ identity: 'before it' }]);
  await untilStored(sluice);
  const before = await dumpTables(sluice);
  await storeFailedRow(sluice, main, 'go', { identity });
  // The insert of a retry that has lost its lock, on a slow ClickHouse: it has read the row and stores it later.
  let isSent = false;
  const sending = sluice
    .rows(`INSERT INTO stored_events (app_id, identity, segment, properties)
      SETTINGS log_comment = 'store asked events 1-1', max_block_size = 1
      SELECT app_id, identity, segment, map('fate', 'go')
      FROM failed_events CROSS JOIN (SELECT sum(sleepEachRow(0.25)) FROM numbers(20)) AS slow
      WHERE identity = '${identity}' AND app_id = '${main}'`)
    .finally(() => {
      isSent = true;
    });
  await until(
    async () =>
      isSent ||
      (
        await sluice.rows(
          "SELECT 1 FROM system.processes WHERE Settings['log_comment'] = 'store asked events 1-1'",
        )
      ).length > 0,
    'the row is being sent',
  );
  const requestId = await submitNow(sluice, token, [{ identity }]);
  await untilComplete(sluice, token, requestId);
  await sending;
  assertExact(before, await dumpTables(sluice), new Set());
});

test('leaves nothing of a deleted user in the files of Redis and ClickHouse, and never in a log', async () => {
  await until(() => clickhouseFiles().length + redisFiles().length === 0, {
    what: 'no file holds the identity that was deleted',
    everyMs: 1_500,
  });
  assert.deepEqual(await keysWith(sluice, marker), []);
  const logs = await withRedis(sluice, (redis) => redis.slowlog('GET', 128));
  assert.ok(!JSON.stringify(logs).includes(marker), 'the slow log of Redis');
  for (const child of [...sluice.api, ...sluice.workers, sluice.redis, sluice.clickhouse]) {
    for (const text of [marker, 'ada@example.com', token]) {
      assert.ok(!child.output().includes(text), `${child.name} logs what was sent`);
    }
  }
});
