// What a compliance caller can ask about requests: what they are doing, whom they found, and which ones there are.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { type DeletionState, deletionStates } from '../../src/contract/deletion-states.js';
import { deletions, queries } from '../../src/contract/limits.js';
import { digestOfReference } from '../../src/privacy/deletion/references.js';
import { registryKeys } from '../../src/redis/keys.js';
import { createTestAccount, untilKnown } from '../harness/accounts.js';
import {
  callWithToken,
  deleteNow,
  deletionPaths,
  getToken,
  listDeletions,
  parse,
  type Reply,
  readStatus,
  sendEvents,
  sendIdentify,
  sendProperties,
  showDeletion,
  submitAccepted,
  submitWith,
  type User,
  untilComplete,
  untilStored,
  withoutRounds,
} from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import type { ApiHandle } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { deletionWorld } from '../support/deletion-world.js';

let { sluice, worker, account, token, strangerToken, main, staging } = await deletionWorld();

test('a status counts the users that were named and found, and the rows of whole merged users', async () => {
  await sendIdentify(sluice, main, '101', 'merged');
  await sendIdentify(sluice, main, '102', 'merged');
  await sendEvents(sluice, main, 'go', [{ user_id: '101' }, { user_id: '102' }, { identity: 'merged' }]);
  await sendEvents(sluice, staging, 'go', [{ user_id: '101' }, { user_id: '103' }]);
  await sendProperties(sluice, main, 'go', ['merged', 'only properties']);
  await sendEvents(sluice, main, 'stay', [{ identity: 'Merged' }, { user_id: '1010' }]);
  await untilStored(sluice);
  const users: User[] = [
    { identity: 'merged' },
    { identity: 'nobody' },
    { user_id: 101 },
    { identity: 'merged' },
    { identity: 'only properties' },
    { user_id: 103 },
    { user_id: 104 },
  ];
  const requestId = await deleteNow(sluice, token, users);
  const {
    submitted_at: submitted,
    hidden_at: hidden,
    completed_at: completed,
    evidence_until: kept,
    ...answered
  } = parse(await readStatus(sluice, token, requestId));
  assert.deepEqual(answered, {
    deletion_request_id: requestId,
    status: 'complete',
    users: 6,
    users_found: 4,
    rows_deleted: 9,
  });
  const times = [submitted, hidden, completed, kept].map(String);
  assert.deepEqual(times, times.toSorted());
});

test('a status shows what a pending request is doing or waiting for', async () => {
  const states = new Set<string>();
  worker.sigstop();
  await sendEvents(sluice, main, 'go', [{ identity: 'waits' }]);
  const requestId = await submitAccepted(sluice, token, [{ identity: 'waits' }]);
  const look = async () => {
    const { status, state, message } = parse(await readStatus(sluice, token, requestId));
    if (status === 'pending') states.add(String(state));
    else assert.equal(state, undefined);
    assert.equal(message, deletionStates[state as DeletionState], 'the state in words');
    return status === 'complete';
  };
  await look();
  const killed = await sluice.addWorker({ CRASH_AT: 'keys_kept:1' });
  await until(() => !killed.running, {
    deadlineMs: 180_000,
    what: 'a worker is killed before it deletes rows',
  });
  await look();
  worker.sigcont();
  await until(look, 'the deletion is complete');
  assert.ok(states.has('submitted') && states.has('deleting'), [...states].join());
  for (const state of states) {
    assert.match(state, /^(submitted|waiting_for_backlog|finding_users|deleting|verifying)$/);
  }
});

test('the same reference and users answer the same request, in any order, also when it is complete', async () => {
  const users = [{ identity: 'ada' }, { user_id: 7 }];
  const first = await submitWith(sluice, token, { users, reference: 'ticket 1' });
  assert.equal(first.status, 201);
  const { deletion_request_id: id } = parse(first);
  const again = [
    { users, reference: 'ticket 1' },
    { users: [{ user_id: '7' }, { identity: 'ada' }, { identity: 'ada' }], reference: 'ticket 1' },
  ];
  for (const body of again) {
    const reply = await submitWith(sluice, token, body);
    assert.deepEqual([reply.status, reply.text], [200, first.text]);
  }
  await untilComplete(sluice, token, String(id));
  const late = await submitWith(sluice, token, { users, reference: 'ticket 1' });
  assert.equal(late.status, 200);
  assert.deepEqual(parse(late), { ...parse(first), status: 'complete' });
  assert.equal(parse(await readStatus(sluice, token, String(id))).reference, 'ticket 1');
});

test('a reference with other users is refused; another account may use it, and requests without one never share', async () => {
  const users = [{ identity: 'ada' }];
  assert.equal((await submitWith(sluice, token, { users, reference: 'ticket 2' })).status, 201);
  const others = [[{ identity: 'Ada' }], [{ identity: 'ada' }, { identity: 'bob' }], [{ user_id: 1 }]];
  for (const other of others) {
    const reply = await submitWith(sluice, token, { users: other, reference: 'ticket 2' });
    assert.equal(reply.status, 409, reply.text);
    const { code, field } = parse(reply).err as { code: string; field: string };
    assert.deepEqual([code, field], ['reference_taken', 'reference']);
  }
  assert.equal((await submitWith(sluice, strangerToken, { users, reference: 'ticket 2' })).status, 201);
  assert.equal((await submitWith(sluice, token, { users, reference: 'Ticket 2' })).status, 201);
  const ids = await Promise.all(
    Array.from({ length: 5 }, async () =>
      parse(await submitWith(sluice, token, { users, reference: 'at once' })),
    ),
  );
  assert.equal(
    new Set(ids.map(({ deletion_request_id: id }) => id)).size,
    1,
    'of several equal requests at once one is stored',
  );
  const unnamed = [await submitWith(sluice, token, { users }), await submitWith(sluice, token, { users })];
  assert.notEqual(unnamed[0]?.text, unnamed[1]?.text);
});

test('a call during which the API process dies may be sent again, and a reference is still one request', async () => {
  const [api] = sluice.api as [ApiHandle];
  const dyingAt = async (point: string, ask: () => Promise<unknown>) => {
    await api.restart({ CRASH_AT: `${point}:1` });
    await assert.rejects(ask(), point);
    assert.equal((await api.exited).signal, 'SIGKILL', point);
    await api.restart();
  };
  await dyingAt('token_issued', () => getToken(sluice, account));
  const ownToken = await getToken(sluice, account);
  for (const [point, status] of [
    ['fence_taken', 201],
    ['deletion_stored', 200],
  ] as const) {
    const body = { users: [{ identity: 'dies' }], reference: point };
    await dyingAt(point, () => submitWith(sluice, ownToken, body));
    assert.equal((await submitWith(sluice, ownToken, body)).status, status, point);
    assert.equal((await listDeletions(sluice, ownToken, `?reference=${point}`)).ids.length, 1, point);
  }
});

test('a reference ends after 30 days, and keeps no name of a user', async () => {
  await submitWith(sluice, token, { users: [{ identity: 'forgotten user' }], reference: 'ends' });
  await withRedis(sluice, async (redis) => {
    const keys = await redis.keys(registryKeys.deletionReference('*'));
    assert.ok(keys.length > 0);
    for (const key of keys) {
      const leftMs = await redis.pttl(key);
      assert.ok(leftMs > deletions.referenceMs - 600_000 && leftMs <= deletions.referenceMs, String(leftMs));
      assert.match(String(await redis.get(key)), /^[0-9a-f]{64} [0-9a-f-]{36}$/);
    }
    await redis.del(...keys);
  });
  assert.equal(
    (await submitWith(sluice, token, { users: [{ identity: 'other' }], reference: 'ends' })).status,
    201,
  );
});

test('the list has the account’s requests, the newest first, page by page, and nobody else’s', async () => {
  const fresh = await createTestAccount(sluice, 'Lists');
  const ownToken = await getToken(sluice, fresh);
  assert.deepEqual(await listDeletions(sluice, ownToken), { ids: [], cursor: undefined });
  worker.sigstop();
  const newestFirst: string[] = [];
  for (let n = 0; n < deletions.listedMax + 50; n++) {
    const reply = await submitWith(sluice, ownToken, {
      users: [{ identity: `user ${n}` }],
      reference: `r${n % 60}-${n}`,
    });
    newestFirst.unshift(String(parse(reply).deletion_request_id));
    if (n % 10 === 0) await submitAccepted(sluice, strangerToken, [{ identity: 'else' }]);
  }
  const first = await listDeletions(sluice, ownToken);
  assert.deepEqual(first.ids, newestFirst.slice(0, deletions.listedMax));
  // A request that comes between two pages must not shift the later page.
  await submitAccepted(sluice, ownToken, [{ identity: 'meanwhile' }]);
  const second = await listDeletions(sluice, ownToken, `?cursor=${first.cursor}`);
  assert.deepEqual(second, { ids: newestFirst.slice(deletions.listedMax), cursor: undefined });
  worker.sigcont();
  for (const id of newestFirst.slice(0, 1)) await untilComplete(sluice, ownToken, id);
});

test('the list takes filters for state and reference', async () => {
  const { ids } = await listDeletions(sluice, token, '?reference=ticket%201&state=complete');
  assert.equal(ids.length, 1);
  assert.equal((await showDeletion(sluice, ids[0] ?? '')).reference, 'ticket 1');
  assert.deepEqual((await listDeletions(sluice, token, '?reference=ticket%201&state=pending')).ids, []);
  assert.deepEqual((await listDeletions(sluice, strangerToken, '?reference=ticket%201')).ids, []);
  assert.ok((await listDeletions(sluice, token, '?state=complete')).ids.length > 1);
  assert.deepEqual((await listDeletions(sluice, token, '?state=targets_lost')).ids, []);
  const all = await listDeletions(sluice, token);
  assert.deepEqual(await listDeletions(sluice, token, '?state=&reference=&cursor='), all, 'no filter');
  const users = `${deletionPaths.status(ids[0] ?? '')}/users`;
  const [first, same] = [users, `${users}?cursor=`].map((path) => callWithToken(sluice, token, path));
  assert.equal((await first)?.status, 200);
  assert.equal((await same)?.text, (await first)?.text);
});

test('a request is found by its reference however many came after it, and later without many pages', async () => {
  const body = { users: [{ identity: 'found again' }], reference: 'found-again' };
  const ids = [parse(await submitWith(sluice, token, body)).deletion_request_id];
  const list = (more = '') => listDeletions(sluice, token, `?reference=found-again${more}`);
  const key = registryKeys.deletionReference(digestOfReference(account.accountId, 'found-again'));
  // More entries than one page looks at. Their documents are missing, as if Redis had lost them.
  const tomorrowMs = Date.now() + 86_400_000;
  const later = Array.from({ length: deletions.listLookedAtMax + 1 }, (_, n) => {
    const at = String(tomorrowMs + n).padStart(14, '0');
    return `${account.accountId} ${at} ${randomUUID()}`;
  });
  await withRedis(sluice, async (redis) => {
    await redis.zadd(registryKeys.listedDeletions, ...later.flatMap((member) => [0, member]));
    try {
      const first = await list();
      assert.deepEqual(first.ids, ids);
      assert.deepEqual(await list(`&cursor=${first.cursor}`), { ids: [], cursor: undefined }, 'listed once');
      await redis.del(key);
      const since = await list(`&cursor=${first.cursor}`);
      assert.deepEqual(since, { ids: [], cursor: undefined }, 'once, although the reference has ended');
      const empty = await list();
      assert.deepEqual(empty.ids, [], 'the reference has ended, and the request is too far back');
      assert.deepEqual(await list(`&cursor=${empty.cursor}`), { ids, cursor: undefined });
    } finally {
      await redis.zrem(registryKeys.listedDeletions, ...later);
    }
  });
});

test('lists that look at many requests take turns by account', async () => {
  const requestId = await submitAccepted(sluice, token, [{ identity: 'listed' }]);
  const tomorrowMs = Date.now() + 86_400_000;
  const others = Array.from({ length: deletions.listLookedAtMax }, () => randomUUID());
  const members = others.map(
    (id, n) => `${account.accountId} ${String(tomorrowMs + n).padStart(14, '0')} ${id}`,
  );
  await withRedis(sluice, async (redis) => {
    const document = (await redis.hget(registryKeys.deletions, requestId)) ?? '';
    await redis.hset(registryKeys.deletions, ...others.flatMap((id) => [id, document]));
    await redis.zadd(registryKeys.listedDeletions, ...members.flatMap((member) => [0, member]));
    try {
      const asked = queries.ofAccountMax + queries.waitingOfAccountMax + 20;
      const flood = Array.from({ length: asked }, () =>
        callWithToken(sluice, token, `${deletionPaths.list}?state=targets_lost`),
      );
      assert.equal((await callWithToken(sluice, strangerToken, deletionPaths.list)).status, 200);
      const statuses = (await Promise.all(flood)).map(({ status }) => status);
      assert.ok(statuses.includes(200) && statuses.includes(503), statuses.join());
    } finally {
      await redis.zrem(registryKeys.listedDeletions, ...members);
      await redis.hdel(registryKeys.deletions, ...others);
    }
  });
});

test('references and lists outlive an emptied Redis, and a list with repeated users keeps its positions', async () => {
  const users = [{ identity: 'a' }, { identity: 'a' }, { user_id: 5 }, { identity: 'a' }, { identity: 'b' }];
  const readKey = async () => (await fetch(`${sluice.baseUrl}/api/public/v0/signing_key`)).text();
  const key = await readKey();
  assert.match(key, /BEGIN PUBLIC KEY/);
  let pending: Reply | undefined;
  let id = '';
  let before: readonly string[] = [];
  await withoutRounds(sluice, async () => {
    pending = await submitWith(sluice, token, { users, reference: 'outlives' });
    id = String(parse(pending).deletion_request_id);
    // If a request comes between the copy of the requests and that of the lists, its list is copied first.
    const isCopied = async () =>
      (await showDeletion(sluice, id)).targets_kept === true &&
      (await sluice.rows(`SELECT 1 FROM deletion_requests WHERE request_id = '${id}'`)).length > 0;
    await until(isCopied, 'ClickHouse has the request and the list of users');
    before = (await listDeletions(sluice, token)).ids;
    worker.sigstop();
    await withRedis(sluice, (redis) => redis.flushall());
  });
  await sluice.admin('state', 'reload');
  await untilKnown(sluice, main);
  token = await getToken(sluice, account);
  assert.deepEqual((await listDeletions(sluice, token)).ids, before);
  assert.equal(await readKey(), key, 'earlier certificates are still genuine');
  const kept = await withRedis(sluice, (redis) => redis.get(registryKeys.deletionTargets(id)));
  assert.deepEqual(JSON.parse(kept ?? ''), ['ia', '', 'u5', '', 'ib']);
  const again = await submitWith(sluice, token, { users, reference: 'outlives' });
  assert.deepEqual([again.status, again.text], [200, pending?.text]);
  assert.equal(
    (await submitWith(sluice, token, { users: users.slice(1), reference: 'outlives' })).status,
    200,
  );
  assert.equal(
    (await submitWith(sluice, token, { users: users.slice(2, 3), reference: 'outlives' })).status,
    409,
  );
  worker.sigcont();
  await untilComplete(sluice, token, id);
});

test('a request whose users were lost is submitted again by the same reference', async () => {
  const users = [{ identity: 'lost' }];
  worker.sigstop();
  const first = parse(await submitWith(sluice, token, { users, reference: 'lost' }));
  const id = String(first.deletion_request_id);
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionTargets(id)));
  worker.sigcont();
  const lost = await until(async () => {
    const status = parse(await readStatus(sluice, token, id));
    return status.state === 'targets_lost' && status;
  }, 'the list is lost');
  assert.match(String(lost.message), /submit the users again/i);
  const second = await submitWith(sluice, token, { users, reference: 'lost' });
  assert.equal(second.status, 201);
  assert.notEqual(parse(second).deletion_request_id, id);
  await untilComplete(sluice, token, String(parse(second).deletion_request_id));
});
