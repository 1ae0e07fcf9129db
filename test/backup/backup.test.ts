// `npm run admin -- backup …`: a backup is made and restored while everything runs, a restore may be killed at any point, and
// no deleted user comes back.

import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import type { Readable } from 'node:stream';
import { mock } from 'node:test';
import type { showKeyIndex } from '../../src/admin/key-index.js';
import type { Question } from '../../src/clickhouse/answers.js';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { crashPoints } from '../../src/crash-point.js';
import type { BackupView } from '../../src/operations/backups.js';
import type { RestoredBackup } from '../../src/operations/restore/plan.js';
import { keepDeletedUsers, readDeletedUsers } from '../../src/privacy/deletion/deleted-users.js';
import { registryKeys } from '../../src/redis/keys.js';
import {
  claimBackup,
  forgetBackup,
  keepsSince,
  noteBackup,
  readBackups,
} from '../../src/registry/backups.js';
import { type Backup, deploymentKey } from '../../src/registry/documents.js';
import { forgetKept } from '../../src/registry/witness-copies.js';
import { deletionRounds, maintenanceLock } from '../../src/tuning.js';
import {
  administer,
  getToken,
  send,
  sendIdentify,
  showDeletion,
  submitAccepted,
  type User,
  untilComplete,
  untilStored,
} from '../harness/deletion.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { withRedis } from '../harness/redis-client.js';
import { runProgram } from '../harness/sluice.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';
import { test } from '../support/test.js';

/** Request ids, by the person that they delete. */
const requests: Record<string, string> = {};

const sluice = await ownSluice({ workers: 0, env: { JOB_LOCK_MS: '500' } });
const worker = await sluice.addWorker();
const account = {
  accountId: sluice.bootstrap.account_id,
  appIds: [sluice.appId],
  apiKey: String(sluice.bootstrap.api_key),
};

function sendEvent(user: { identity: string } | { user_id: string }, event = 'Seen'): Promise<void> {
  return send(sluice, '/api/track', {
    app_id: sluice.appId,
    event,
    ...user,
    idempotency_key: `${event} of ${Object.values(user)[0]}`,
  });
}

/** The users whose events can be queried, each with the event's name. */
async function seen(): Promise<string[]> {
  const rows = await sluice.rows<{ who: string }>(
    "SELECT concat(identity, toString(user_id), ' ', event) AS who FROM (SELECT identity, ifNull(toString(user_id), '') AS user_id, event FROM events) ORDER BY who",
  );
  return rows.map(({ who }) => who);
}

async function submit(name: string, ...users: readonly User[]): Promise<void> {
  requests[name] = await submitAccepted(sluice, await getToken(sluice, account), users);
}

async function complete(...names: readonly string[]): Promise<void> {
  const token = await getToken(sluice, account);
  for (const name of names) await untilComplete(sluice, token, String(requests[name]));
}

async function deletedUsers(): Promise<string[]> {
  return withRedis(sluice, (redis) => redis.keys(registryKeys.deletedUsers('*')));
}

let holding: NodeJS.Timeout | undefined;

/** No user is deleted while deletions are held. */
async function holdDeletions(held: boolean): Promise<void> {
  const lock = registryKeys.maintenanceLock;
  clearInterval(holding);
  if (!held) return withRedis(sluice, async (redis) => void (await redis.del(lock)));
  const hold = () =>
    withRedis(sluice, (redis) => redis.set(lock, 'retry of a test', 'PX', maintenanceLock.holdMs));
  await hold();
  holding = setInterval(() => void hold(), maintenanceLock.renewEveryMs);
}

/** Kills a command at a crash point and removes its locks, so that the next command need not wait until they expire. */
async function killAt(point: string, ...words: readonly string[]): Promise<void> {
  const killed = runProgram('src/admin/main.js', words, { ...sluice.env, CRASH_AT: point });
  await assert.rejects(killed, /ended with SIGKILL/, point);
  await withRedis(sluice, (redis) => redis.del(registryKeys.restoreLock, registryKeys.backupLock));
}

function restore(name: string): Promise<RestoredBackup> {
  return sluice.admin('backup', 'restore', name, '--yes') as Promise<RestoredBackup>;
}

test('keeps a hash of a deleted user for a month without any backup', async () => {
  for (const identity of ['ada', 'bob', 'carol', 'dave']) await sendEvent({ identity });
  await sendEvent({ user_id: '7' });
  await submit('ada', { identity: 'ada' });
  await complete('ada');
  assert.equal((await deletedUsers()).length, 1);
  await withRedis(sluice, async (redis) => {
    const leftMs = await redis.pttl(registryKeys.deletedUsers(String(requests.ada)));
    assert.ok(leftMs > 29 * 86_400_000 && leftMs <= 30 * 86_400_000, String(leftMs));
  });
});

/** A key that is added to the index while a backup is made. */
const lateKey = { hash: 4711, rest: 7, segment: 1_700_000_000_000_000 };

test('makes a backup, continues one that was interrupted, and lists it', async () => {
  // Carol is deleted, and comes back before the backup: what she sends then is above the request's fence.
  await holdDeletions(true);
  await submit('carol', { identity: 'carol' });
  await sendEvent({ identity: 'carol' }, 'Back');
  await untilStored(sluice);
  const create = ['backup', 'create', 'one', '--keep-days', '40'] as const;
  await killAt('rows_backed_up', ...create);
  // A deletion adds such a key when the copied tables no longer have its rows.
  await sluice.rows(
    `INSERT INTO stored_keys (hash, rest, segment) VALUES (${Object.values(lateKey).join()})`,
  );
  // All parts are there, but nobody has compared whether they belong together.
  await killAt('parts_compared', ...create);
  const [cutOff] = (await sluice.admin('backup', 'list')) as BackupView[];
  assert.equal(cutOff?.status, 'unknown');
  await assert.rejects(restore('one'), /the backup one has no end mark .*"backup create one" continues/);
  await killAt('end_marked', ...create);
  const made = (await sluice.admin(...create)) as BackupView;
  assert.equal(made.status, 'complete');
  assert.ok((made.bytes ?? 0) > 0);
  assert.deepEqual(await sluice.admin('backup', 'list'), [made]);
  assert.equal(Date.parse(made.keep_until) - Date.parse(made.began_at), 40 * 24 * 60 * 60_000);
  await assert.rejects(sluice.admin('backup', 'create', 'one'), /there is already a backup one/);
  await holdDeletions(false);
  await complete('carol');
});

test('refuses an invalid name, a restore without --yes and a backup of another deployment, and changes nothing', async () => {
  for (const name of ['', "a'", 'a b', '../a', 'x'.repeat(65)]) {
    await assert.rejects(sluice.admin('backup', 'create', name), /the name of a backup/, name);
    await assert.rejects(sluice.admin('backup', 'restore', name, '--yes'), /the name of a backup/, name);
  }
  await assert.rejects(sluice.admin('backup', 'restore', 'one'), /add --yes/);
  await assert.rejects(sluice.admin('backup', 'create', 'x', '--keep-days', '3651'), /from 1 to 3650/);
  await assert.rejects(restore('two'), /the restore failed: there is no backup two on the backup disk$/m);
  await withRedis(sluice, async (redis) => {
    const own = (await redis.hget(registryKeys.documents, deploymentKey)) ?? '';
    const another = JSON.stringify({ ...JSON.parse(own), epoch: 'another' });
    await redis.hset(registryKeys.documents, deploymentKey, another);
    await redis.incr(registryKeys.version);
    try {
      await assert.rejects(restore('one'), /the backup is of another deployment than the one in Redis/);
    } finally {
      await redis.hset(registryKeys.documents, deploymentKey, own);
      await redis.incr(registryKeys.version);
    }
  });
  assert.deepEqual(await seen(), [' 7 Seen', 'bob Seen', 'carol Back', 'dave Seen'].map(trimmed));
});

/** In the form of `seen`. */
function trimmed(text: string): string {
  return text.trimStart();
}

test('if two backups claim a name at once, one gets it; a backup that fails removes only what is its own', async () => {
  await withRedis(sluice, async (redis) => {
    const keep_until = new Date(Date.now() + 86_400_000).toISOString();
    const claims = [1, 2].map((year) => ({
      name: 'twin',
      began_at: `200${year}-01-01T00:00:00.000Z`,
      keep_until,
    }));
    const [noted, also] = await Promise.all(claims.map((claim) => claimBackup(redis, claim)));
    const winner = claims.find(({ began_at }) => began_at === noted?.began_at) as Backup;
    const loser = claims.find((claim) => claim !== winner) as Backup;
    assert.deepEqual([noted, also], [winner, winner]);
    const twins = async () => (await readBackups(redis)).filter(({ name }) => name === 'twin');
    await forgetBackup(redis, loser);
    assert.deepEqual(await twins(), [winner]);
    assert.equal(await keepsSince(redis, 'twin', winner.began_at), true);
    await forgetBackup(redis, winner);
    assert.deepEqual(await twins(), []);
    assert.equal(await redis.exists(registryKeys.deletedUsersSince('twin')), 0);
  });
});

test('decides by the clock of Redis whether hashes are kept, and how long', async () => {
  const { clickhouseUrl: url, database } = sluice;
  const clickhouse = connectClickHouse({ url, database });
  await sluice.rows(
    "INSERT INTO deletion_targets (request_id, app_id, identity) VALUES ('clock', '', 'zoe')",
  );
  const tenDaysAhead = mock.method(Date, 'now', () => performance.timeOrigin + 10 * 86_400_000);
  try {
    await withRedis(sluice, async (redis) => {
      await keepDeletedUsers(redis, clickhouse, ['clock']);
      const leftMs = await redis.pttl(registryKeys.deletedUsers('clock'));
      assert.ok(leftMs > 39 * 86_400_000 && leftMs <= 40 * 86_400_000, String(leftMs));
      await redis.del(registryKeys.deletedUsers('clock'));
    });
  } finally {
    tenDaysAhead.mock.restore();
    await clickhouse.close();
  }
});

test('keeps the hashes of many users piece by piece, a request while the next is read', async () => {
  const { clickhouseUrl: url, database } = sluice;
  const clickhouse = connectClickHouse({ url, database });
  const users = 60_000;
  const ids = ['many-1', 'many-2'];
  for (const id of ids)
    await sluice.rows(
      `INSERT INTO deletion_targets (request_id, app_id, user_id) SELECT '${id}', '', number FROM numbers(${users})`,
    );
  let hashes: Readable | undefined;
  const exec = clickhouse.exec.bind(clickhouse);
  clickhouse.exec = (async (asked: Question) => {
    const answer = await exec(asked);
    if (asked.query.includes('sipHash128Keyed')) hashes = answer.stream;
    return answer;
  }) as typeof exec;
  try {
    await withRedis(sluice, async (redis) => {
      let [bytesMax, wroteWhileReading] = [0, false];
      const sendCommand = redis.sendCommand.bind(redis);
      redis.sendCommand = (command, ...rest) => {
        wroteWhileReading ||= command.name === 'set' && hashes?.readableEnded === false;
        for (const arg of command.args) if (Buffer.isBuffer(arg)) bytesMax = Math.max(bytesMax, arg.length);
        return sendCommand(command, ...rest);
      };
      await keepDeletedUsers(redis, clickhouse, ids);
      assert.ok(wroteWhileReading, 'not all hashes are in memory at once');
      assert.ok(bytesMax <= deletionRounds.hashBytesPerWrite, String(bytesMax));
      for (const id of ids) {
        assert.equal(new Set(await readDeletedUsers(redis, id)).size, users);
        assert.ok((await redis.pttl(registryKeys.deletedUsers(id))) > 0);
        await redis.del(registryKeys.deletedUsers(id));
      }
      assert.deepEqual(
        await redis.keys(registryKeys.deletedUsers('many-*')),
        [],
        'nothing unfinished is left',
      );
    });
  } finally {
    await sluice.rows(
      "ALTER TABLE deletion_targets DELETE WHERE request_id LIKE 'many-%' SETTINGS mutations_sync = 2",
    );
    await clickhouse.close();
  }
});

test('keeps hashes of deleted users, merged ones included, as long as a backup is kept', async () => {
  await sendIdentify(sluice, sluice.appId, '7', 'erin');
  await submit('erin', { identity: 'erin' });
  await submit('bob', { identity: 'bob' });
  await complete('erin', 'bob');
  assert.equal((await deletedUsers()).length, 4);
  await withRedis(sluice, async (redis) => {
    // Two hashes: one of the named identity, one of the user that was merged into it.
    assert.equal(await redis.strlen(registryKeys.deletedUsers(String(requests.erin))), 2 * 16);
    const leftMs = await redis.pttl(registryKeys.deletedUsers(String(requests.bob)));
    assert.ok(leftMs > 39 * 86_400_000 && leftMs <= 40 * 86_400_000, String(leftMs));
  });
});

test('a restore that is killed anywhere continues when it is called again, and never shows a deleted user', async () => {
  // These are stored after the backup. One of the users is deleted again, and the key of the last event is not in the index yet.
  for (const identity of ['lost', 'gone']) await sendEvent({ identity });
  await untilStored(sluice);
  await submit('gone', { identity: 'gone' });
  await complete('gone');
  await withRedis(sluice, forgetKeys);
  await sendEvent({ identity: 'late' });
  await untilStored(sluice);
  await worker.stop();
  // One request has found its users and rewritten a table; what frank sends waits in Redis.
  await submit('dave', { identity: 'dave' });
  await (await sluice.addWorker({ CRASH_AT: 'after_mutation' })).exited;
  // Otherwise the restore would wait for a minute, until the killed worker's lock expires.
  await withRedis(sluice, (redis) => redis.del(registryKeys.maintenanceLock));
  await sendEvent({ identity: 'frank' });
  const spec = crashPoints.backup.flatMap((point) =>
    point === 'table_exchanged' ? [point, `${point}:4` as const] : [point],
  );
  for (const point of spec) {
    await killAt(point, 'backup', 'restore', 'one', '--yes');
    for (const who of await seen()) assert.doesNotMatch(who, /^(ada|bob|7|erin|carol Seen)/, point);
    if (point === 'table_exchanged')
      await assert.rejects(restore('two'), /the restore of one was interrupted: run it again first/);
    if (point.startsWith('table_exchanged'))
      await assert.rejects(sluice.admin('backup', 'create', 'mixed'), /its restore was interrupted/);
  }
  await worker.restart();
  const { deleted_again, ...restored } = await restore('one');
  // The last kill came when the restore had only to drop the replaced tables.
  assert.deepEqual(restored, { name: 'one', state: 'kept', submit_again: [], was_done: true });
  // The rows of carol, erin, bob and dave, who have one event each in the backup; erin's is that of user 7.
  assert.deepEqual(deleted_again, { requests: 6, rows: 4 });
  await complete('dave');
  await untilStored(sluice);
  assert.deepEqual(await seen(), ['carol Back', 'frank Seen']);
  const databases = await sluice.rows("SELECT name FROM system.databases WHERE name LIKE 'sluice_restore'");
  assert.deepEqual(databases, []);
});

test('after a restore no key is free, whether its row is back, deleted or lost', async () => {
  const before = await seen();
  await withRedis(sluice, forgetKeys);
  await repeatAll();
  assert.deepEqual(await seen(), before);
});

test('a filter of keys that a worker loads while a restore is interrupted hides no key afterwards', async () => {
  // The index of keys is exchanged first.
  await killAt('table_exchanged', 'backup', 'restore', 'one', '--yes');
  await sendEvent({ identity: 'between' });
  await untilStored(sluice);
  await killAt('rows_exchanged', 'backup', 'restore', 'one', '--yes');
  assert.ok(!(await seen()).includes('between Seen'));
  // The index reaches beyond the event's segment, and the filter is loaded from it.
  await withRedis(sluice, forgetKeys);
  await loadFilter();
  await restore('one');
  await withRedis(sluice, forgetKeys);
  await loadFilter();
  await sendEvent({ identity: 'between' });
  await untilStored(sluice);
  assert.ok(!(await seen()).includes('between Seen'));
});

let newEvents = 0;

/** Stores new events until the worker's filter of keys has ruled one out. */
async function loadFilter(): Promise<void> {
  await until(async () => {
    const before = await countUnfiltered();
    await sendEvent({ identity: 'other' }, `New ${newEvents++}`);
    await untilStored(sluice);
    return (await countUnfiltered()) === before;
  }, 'the filter is loaded');
}

/** How many keys the worker has looked up without its filter until now. The worker publishes that in Redis every two seconds. */
async function countUnfiltered(): Promise<number> {
  type Published = { atMs: number; metrics: { name: string; values: { value: number }[] }[] };
  const nowMs = Date.now();
  let published: Published | undefined;
  await withRedis(sluice, (redis) =>
    until(async () => {
      const all = await redis.hgetall(registryKeys.metrics(hostname()));
      const workers = Object.entries(all).filter(([name]) => name.startsWith('worker'));
      published = workers.map(([, text]) => JSON.parse(text) as Published).find(({ atMs }) => atMs > nowMs);
      return published !== undefined;
    }, 'the worker publishes its metrics'),
  );
  const unfiltered = published?.metrics.find(({ name }) => name === 'sluice_keys_unfiltered_total');
  return (unfiltered?.values ?? []).reduce((sum, { value }) => sum + value, 0);
}

/** Sends all events of before the restore again. */
async function repeatAll(): Promise<void> {
  for (const identity of ['ada', 'bob', 'carol', 'dave', 'frank', 'lost', 'gone', 'late'])
    await sendEvent({ identity });
  await sendEvent({ user_id: '7' });
  await sendEvent({ identity: 'carol' }, 'Back');
  await untilStored(sluice);
}

test('the index of keys says how large and how complete it is, and workers rebuild it', async () => {
  type Index = Awaited<ReturnType<typeof showKeyIndex>>;
  const status = async () => (await sluice.admin('keys-index', 'status')) as Index;
  const [count] = await sluice.rows<{ keys: string }>(
    'SELECT toString(uniqExact(hash)) AS keys FROM stored_keys WHERE hash != 0',
  );
  const known = await status();
  assert.equal(known.keys, Number(count?.keys));
  assert.ok(known.keys >= 9 && known.bytes > 0);
  assert.ok(Math.abs(Date.parse(String(known.needed_since)) - Date.now()) < 600_000);
  assert.deepEqual(
    known.shards.map(({ complete, rebuild }) => ({ complete, rebuild })),
    [{ complete: true, rebuild: null }],
  );
  await worker.stop();
  await sluice.rows('TRUNCATE TABLE stored_keys');
  assert.equal((await status()).shards[0]?.complete, false);
  const asked = await administer<Index>(sluice, 'POST', '/keys-index/rebuild');
  assert.deepEqual(asked.shards[0]?.rebuild, { done_to: null, to: null });
  await worker.restart();
  const rebuilt = (await sluice.admin('keys-index', 'rebuild')) as Index;
  assert.equal(rebuilt.shards[0]?.complete, true);
  const [stored] = await sluice.rows<{ keys: string }>(
    "SELECT toString(count()) AS keys FROM events WHERE event != ''",
  );
  assert.equal(rebuilt.keys, Number(stored?.keys), 'the keys of what is stored');
});

test('a restore keeps the lines that the audit log got since the backup', async () => {
  const actions = (await sluice.admin('audit', 'list', '--limit', '1000')) as { action: string }[];
  for (const action of ['create_backup', 'submit_deletion', 'restore_backup']) {
    assert.ok(
      actions.some((entry) => entry.action === action),
      action,
    );
  }
});

test('the restored tables refuse segments that a worker had read before', async () => {
  const late = sluice.rows(
    `INSERT INTO stored_events (app_id, segment) VALUES ('${sluice.appId}', 1700000000000000)`,
  );
  // 1700000000000000 is a number of shard 0.
  await assert.rejects(late, /Constraint `shard_limits`/);
});

test('after a restore everything continues: deletions, and the second copies of what Redis has', async () => {
  const evidence = await showDeletion(sluice, String(requests.dave));
  assert.deepEqual(evidence.found, [{ app_id: sluice.appId, table: 'stored_events', rows: 1 }]);
  await submit('frank', { identity: 'frank' });
  await complete('frank');
  const lists = async () => [
    await sluice.admin('accounts', 'list'),
    ((await sluice.admin('deletions', 'list')) as { deletion_request_id: string; status: string }[])
      .map(({ deletion_request_id, status }) => `${deletion_request_id} ${status}`)
      .sort(),
    await sluice.admin('backup', 'list'),
  ];
  const known = await lists();
  await until(
    () => withRedis(sluice, async (redis) => (await redis.zcard(registryKeys.uncopied)) === 0),
    'the requests are copied',
  );
  await withRedis(sluice, (redis) => redis.flushall());
  assert.equal(((await sluice.admin('state', 'reload')) as { state: string }).state, 'restored');
  assert.deepEqual(await lists(), known);
});

test('names the requests whose users are unknown, since their hashes were lost with Redis', async () => {
  // The backup is no longer registered either, since it has expired. A later backup cannot take its name, since its file still exists.
  await withRedis(sluice, async (redis) => {
    for (const backup of await readBackups(redis)) await forgetBackup(redis, backup);
    // Nobody may be told to remove that file as one of a backup that failed.
    await assert.rejects(
      sluice.admin('backup', 'create', 'one'),
      /the disk for backups already has a backup one: make one with another name$/,
    );
    assert.deepEqual(await readBackups(redis), []);
    // This leaves the entry that such a backup would leave if it were killed instead.
    const began_at = new Date().toISOString();
    const keep_until = new Date(Date.now() + 86_400_000).toISOString();
    await claimBackup(redis, { name: 'one', began_at, keep_until });
  });
  const restored = await restore('one');
  assert.equal(restored.deleted_again.requests, 0);
  const again = restored.submit_again.map(({ deletion_request_id: id }) => id).sort();
  const names = ['bob', 'carol', 'dave', 'erin', 'frank', 'gone'];
  // Ada's request was complete shortly before the backup began, but by another clock, so it is named too.
  assert.deepEqual(again, ['ada', ...names].map((name) => requests[name]).sort());
  assert.deepEqual(await seen(), ['7 Seen', 'bob Seen', 'carol Back', 'carol Seen', 'dave Seen']);
});

test('a restore waits for a round of deletions and for a move, and exchanges nothing until they have ended', async () => {
  const lock = registryKeys.maintenanceLock;
  await withRedis(sluice, async (redis) => {
    let ended = false;
    let restored: Promise<unknown> | undefined;
    for (const owner of ['round of a worker', 'move of a shard']) {
      await redis.set(lock, owner, 'PX', 3_600_000);
      restored ??= restore('one').finally(() => {
        ended = true;
      });
      // A process that waits for the lock shortens any time to live that no lock can have.
      await until(
        async () => (await redis.pttl(lock)) <= maintenanceLock.holdMs,
        'the restore asks whether the lock is free',
      );
      assert.deepEqual([ended, await redis.exists(registryKeys.restoringBackup)], [false, 0]);
    }
    await redis.del(lock);
    await restored;
  });
});

test('restores a ClickHouse that is empty, and a Redis that is empty too', async () => {
  // The backup has bob's event, but its index of keys does not have the key.
  await submit('bob', { identity: 'bob' });
  await complete('bob');
  await sluice.rows('DROP DATABASE sluice SYNC');
  // Workers get to know the index of an empty ClickHouse before it is restored.
  await runProgram('src/migrate.js', [], sluice.env);
  // The witness of the former ClickHouse is forgotten, since this one replaces it on purpose and is not an older copy of it.
  await withRedis(sluice, (redis) => forgetKept(redis, [0]));
  for (const identity of ['x1', 'x2']) {
    await sendEvent({ identity });
    await untilStored(sluice);
    await withRedis(sluice, forgetKeys);
  }
  assert.equal((await restore('one')).state, 'kept');
  const back = await seen();
  assert.equal(back.length, 4);
  const late = await sluice.rows(`SELECT hash FROM stored_keys WHERE hash = ${lateKey.hash}`);
  assert.equal(late.length, 1, 'a backup copies the index of keys after its rows');
  for (const identity of ['bob', 'carol', 'dave', 'x1']) await sendEvent({ identity });
  await untilStored(sluice);
  assert.deepEqual(await seen(), back, 'no key is free');
  await withRedis(sluice, (redis) => redis.flushall());
  await sluice.rows('DROP DATABASE sluice SYNC');
  assert.equal((await restore('one')).state, 'restored');
  // Carol's request was pending when the backup began; its users are among the backup's targets.
  await complete('carol');
  assert.deepEqual(await seen(), ['7 Seen', 'bob Seen', 'carol Back', 'dave Seen']);
});

test('continues although Redis is emptied after the first exchange, and still knows what was done since the backup', async () => {
  await sluice.admin('backup', 'create', 'late');
  await sluice.admin('accounts', 'create', 'Since', '--environment', 'Main');
  const names = async () =>
    ((await sluice.admin('accounts', 'list')) as { name: string }[]).map(({ name }) => name).sort();
  const known = await names();
  await worker.stop();
  await submit('bob', { identity: 'bob' });
  await (await sluice.addWorker({ CRASH_AT: 'after_mutation' })).exited;
  await withRedis(sluice, (redis) => redis.del(registryKeys.maintenanceLock));
  const requestsOfBob = `SELECT request_id FROM deletion_requests WHERE request_id = '${requests.bob}'`;
  assert.notDeepEqual(await sluice.rows(requestsOfBob), []);
  await killAt('table_exchanged:6', 'backup', 'restore', 'late', '--yes');
  assert.deepEqual(await sluice.rows(requestsOfBob), [], 'the requests come from the backup');
  await withRedis(sluice, (redis) => redis.flushall());
  for (const command of ['restore', 'bootstrap'])
    await assert.rejects(
      sluice.admin(command),
      /the restore of late was interrupted: "backup restore late --yes"/,
    );
  await killAt('epoch_restored', 'backup', 'restore', 'late', '--yes');
  await withRedis(sluice, async (redis) =>
    assert.equal(await redis.exists(registryKeys.restoringBackup), 1, 'nobody is deleted meanwhile'),
  );
  assert.deepEqual(await names(), known);
  await worker.restart();
  assert.equal((await restore('late')).state, 'kept');
  await complete('bob');
  assert.deepEqual(await names(), known);
  assert.deepEqual(await seen(), ['7 Seen', 'carol Back', 'dave Seen']);
  await withRedis(sluice, (redis) => redis.flushall());
  assert.equal(((await sluice.admin('state', 'reload')) as { state: string }).state, 'restored');
});

test('a backup that is based on another one ends with it, since a restore needs both', async () => {
  const base = (await sluice.admin('backup', 'create', 'base', '--keep-days', '2')) as BackupView;
  const makeFrom = (name: string, ...more: readonly string[]) =>
    sluice.admin('backup', 'create', name, '--base', 'base', ...more) as Promise<BackupView>;
  const made = await makeFrom('based');
  assert.equal(made.keep_until, base.keep_until);
  const short = await makeFrom('short', '--keep-days', '1');
  assert.equal(Date.parse(short.keep_until) - Date.parse(short.began_at), 24 * 60 * 60_000);
  // Its files may still be there.
  await withRedis(sluice, async (redis) => {
    const [kept] = (await readBackups(redis)).filter(({ name }) => name === 'base');
    await noteBackup(redis, { ...(kept as Backup), keep_until: new Date().toISOString() });
  });
  await assert.rejects(makeFrom('late-based'), /there is no backup base, or it has ended/);
  const names = ((await sluice.admin('backup', 'list')) as BackupView[]).map(({ name }) => name);
  assert.ok(!names.includes('late-based'), String(names));
});
