// What else may happen while a backup is made or restored: another process does the same, a start, a worker that indexes keys, an
// answer that is lost, a statement that arrives late. Tables may be larger than ClickHouse drops by default.

import assert from 'node:assert/strict';
import { after, afterEach, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { BackupView } from '../../src/operations/backups.js';
import type { RestoredBackup } from '../../src/operations/restore/plan.js';
import { registryKeys } from '../../src/redis/keys.js';
import { keepsSince, readBackups } from '../../src/registry/backups.js';
import { runAdmin } from '../harness/administration.js';
import { startChild } from '../harness/child.js';
import {
  type Choice,
  type ClickHouseGate,
  type Statement,
  startClickHouseGate,
} from '../harness/clickhouse-gate.js';
import { send, untilStored } from '../harness/deletion.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { runProgram } from '../harness/sluice.js';
import { until } from '../harness/wait.js';
import { test } from '../support/test.js';

const adminProgram = fileURLToPath(new URL('../../src/admin/main.js', import.meta.url));

let sluice: SluiceHandle;
let gates: readonly [ClickHouseGate, ClickHouseGate];

before(async () => {
  sluice = await startSluice({ workers: 1 });
  const { url } = sluice.clickhouse;
  gates = [await startClickHouseGate(url), await startClickHouseGate(url)];
  await sendEvent('of the backup');
  // A restore has to detach a part that a mutation has rewritten.
  await sendEvent('gone');
  await sluice.rows("ALTER TABLE stored_events DELETE WHERE event = 'gone' SETTINGS mutations_sync = 2");
  await withRedis(sluice, forgetKeys);
  await sluice.admin('backup', 'create', 'one');
});

afterEach(() => {
  for (const gate of gates) gate.pass();
  for (const gate of gates) gate.hold(() => false);
});

after(async () => {
  for (const gate of gates ?? []) await gate.close();
  await sluice?.stop();
});

async function sendEvent(event: string): Promise<void> {
  const { appId: app_id } = sluice;
  await send(sluice, '/api/track', { app_id, event, identity: 'ada', idempotency_key: event });
  await untilStored(sluice);
}

async function seen(): Promise<string[]> {
  const rows = await sluice.rows<{ event: string }>('SELECT event FROM events ORDER BY event');
  return rows.map(({ event }) => event);
}

/** Restores a backup through another URL of ClickHouse: that of a gate, or one with settings. */
function restoreBy(url: string, name = 'one'): Promise<RestoredBackup> {
  const env = { ...sluice.env, CLICKHOUSE_URL: url };
  return runAdmin(['backup', 'restore', name, '--yes'], env) as Promise<RestoredBackup>;
}

/** Restores again if another restore took longer than this one waits, as on a crowded machine. */
async function restoreInTurn(url: string, onRefused: () => void): Promise<RestoredBackup> {
  return restoreBy(url).catch((error: Error) => {
    if (!error.message.startsWith('another restore of a backup is running')) throw error;
    onRefused();
    return restoreInTurn(url, onRefused);
  });
}

/** Asserts that no database of a restore takes up room, and no key of it holds up deletions and moves. */
async function assertNothingLeft(): Promise<void> {
  const beside = "SELECT name FROM system.databases WHERE name LIKE 'sluice_restore%'";
  assert.equal(await sluice.clickhouse.query(beside), '');
  await withRedis(sluice, async (redis) =>
    assert.equal(await redis.exists(registryKeys.restoringBackup, registryKeys.restoreLock), 0),
  );
}

async function untilHeld(gate: ClickHouseGate): Promise<void> {
  await until(() => gate.held.length > 0, 'a statement is held');
}

/** Removes the locks that a killed process leaves until they expire. */
async function endLocks(): Promise<void> {
  await withRedis(sluice, (redis) => redis.del(registryKeys.restoreLock, registryKeys.maintenanceLock));
}

/** Takes the locks from the process that renews them, as if it were paused, until another process has them and its statement is held. */
async function handLocksOver(to: ClickHouseGate): Promise<void> {
  await withRedis(sluice, async (redis) => {
    const locks = [registryKeys.restoreLock, registryKeys.maintenanceLock];
    const owners = await redis.mget(locks);
    await until(async () => {
      for (const [index, lock] of locks.entries())
        if ((await redis.get(lock)) === owners[index]) await redis.del(lock);
      return to.held.length > 0;
    }, 'the other one has the right');
  });
}

const startsWith =
  (text: string): Choice =>
  ({ sql }) =>
    sql.startsWith(text);

test('restores months and an index of keys that are larger than ClickHouse’s limit for drops', async () => {
  for (const bound of ['max_partition_size_to_drop', 'max_table_size_to_drop']) {
    // One byte is the limit of each statement that does not set its own.
    await restoreBy(`${sluice.clickhouse.url}/?ch_${bound}=1`);
    assert.deepEqual(await seen(), ['of the backup'], bound);
  }
});

test('frees no key that a worker indexes while a restore copies the index', async () => {
  await sendEvent('since');
  const [gate] = gates;
  // The held statement reads how far the index reaches. The keys must not have been copied by then.
  gate.hold(({ sql }) => sql.includes('FROM sluice.stored_keys WHERE hash = 0 GROUP BY rest'));
  const restored = restoreBy(gate.url);
  await untilHeld(gate);
  await withRedis(sluice, forgetKeys);
  gate.release();
  await restored;
  await withRedis(sluice, forgetKeys);
  for (const event of ['of the backup', 'since']) await sendEvent(event);
  assert.deepEqual(await seen(), ['of the backup']);
});

test('a second restore waits until the first one has ended', async () => {
  const [first, second] = gates;
  first.hold(startsWith('EXCHANGE TABLES'));
  const one = restoreBy(first.url);
  await untilHeld(first);
  second.hold(startsWith('DROP DATABASE IF EXISTS sluice_restore'));
  let refusals = 0;
  const two = restoreInTurn(second.url, () => {
    refusals += 1;
  });
  await until(
    async () => (await waits(registryKeys.restoreLock)) === true,
    'the second one asks for the lock',
  );
  assert.deepEqual([second.held, refusals], [[], 0]);
  second.release();
  first.release();
  for (const restored of [await one, await two]) assert.equal(restored.state, 'kept');
  assert.deepEqual(await seen(), ['of the backup']);
});

/** Whether a process asks for a lock that another one has: it shortens a time to live that no lock can have. */
async function waits(lock: string): Promise<boolean> {
  return withRedis(sluice, async (redis) => {
    await redis.pexpire(lock, 3_600_000);
    await new Promise((resolve) => setTimeout(resolve, 300));
    return (await redis.pttl(lock)) < 60_000;
  });
}

test('a restore that was paused exchanges nothing that another one has made since', async () => {
  const [first, second] = gates;
  // The first process has restored its backup and is about to bring the schema up to date.
  first.hold(startsWith('CREATE DATABASE IF NOT EXISTS sluice_restore'));
  const one = restoreBy(first.url);
  await untilHeld(first);
  second.hold(startsWith('RESTORE DATABASE'));
  const two = restoreBy(second.url);
  await handLocksOver(second);
  first.release();
  await assert.rejects(one, /another restore has started/);
  assert.deepEqual(await seen(), ['of the backup']);
  second.release();
  // The first one has made tables where the second one restores its own.
  await two.catch((error: Error) => assert.match(error.message, /the restore failed/));
  assert.deepEqual(await seen(), ['of the backup']);
  await sluice.admin('backup', 'restore', 'one', '--yes');
  assert.deepEqual(await seen(), ['of the backup']);
});

test('an exchange that arrives late does not take a restored table out of use again', async () => {
  await sendEvent('late exchange');
  const [first, second] = gates;
  first.hold(({ sql }) => sql.startsWith('EXCHANGE TABLES') && sql.includes('sluice.stored_events'));
  const one = restoreBy(first.url);
  await untilHeld(first);
  second.hold(startsWith('DROP TABLE IF EXISTS sluice_restore.'));
  const two = restoreBy(second.url);
  await handLocksOver(second);
  assert.deepEqual(await seen(), ['of the backup']);
  first.release();
  await assert.rejects(one, /stored_events_taken_by_\w+` doesn't exist/);
  second.release();
  await two;
  assert.deepEqual(await seen(), ['of the backup']);
});

test('a restore that only failed to drop what it replaced takes nothing away when it is run again', async () => {
  const [gate] = gates;
  gate.hold(startsWith('DROP TABLE IF EXISTS sluice_restore.'));
  const restored = restoreBy(gate.url);
  await untilHeld(gate);
  gate.forget();
  await assert.rejects(restored, /the backup one is restored, but the replaced tables could not be dropped/);
  gate.release();
  await sendEvent('after the restore');
  assert.equal(((await sluice.admin('backup', 'restore', 'one', '--yes')) as RestoredBackup).was_done, true);
  assert.deepEqual(await seen(), ['after the restore', 'of the backup']);
  // Everything is done, but the answer to the last statement is lost.
  gate.loseAnswers(({ sql }) => sql.startsWith('DROP DATABASE') && gate.lost.length === 0 && isExchanged);
  let isExchanged = false;
  gate.hold(({ sql }) => {
    isExchanged ||= sql.startsWith('EXCHANGE TABLES');
    return false;
  });
  assert.equal((await restoreBy(gate.url)).state, 'kept');
  assert.equal(gate.lost.length, 1);
  assert.deepEqual(await seen(), ['of the backup']);
});

const readsTables = startsWith('SELECT name, toString(uuid) AS uuid FROM system.tables');

/** Chooses the first statement of this kind after a restore has recorded this progress on the primary server. */
function afterNote(note: string, choice: Choice): Choice {
  let isNoted = false;
  return (statement) => {
    const isChosen = isNoted && choice(statement);
    isNoted ||= statement.sql.includes('sluice_restore.restore_plan') && statement.body.includes(note);
    return isChosen;
  };
}

test('a restore that fails before it exchanges a table leaves nothing', async () => {
  const before = await seen();
  const [gate] = gates;
  const steps = [
    startsWith('RESTORE TABLE sluice.stored_keys'),
    ({ sql }: Statement) => sql.includes('INSERT INTO sluice_restore.restore_plan'),
    // Redis has the plan by now.
    ({ sql }: Statement) => sql.startsWith('RENAME TABLE') && sql.includes('_taken_by_'),
  ];
  for (const [index, step] of steps.entries()) {
    gate.refuse(step, notEnoughSpace);
    await assert.rejects(restoreBy(gate.url));
    assert.equal(gate.faked.length, 1, String(index));
    await assertNothingLeft();
    assert.deepEqual(await seen(), before);
  }
});

const notEnoughSpace = 243;

/** Has a restore that sends its statements through the first gate fail at one of them. */
async function failRestoreAt(choice: Choice): Promise<void> {
  const [gate] = gates;
  gate.hold(choice);
  const restored = restoreBy(gate.url);
  await untilHeld(gate);
  gate.forget();
  await assert.rejects(restored);
  gate.release();
}

for (const what of ['TABLE sluice_restore.stored_events', 'DATABASE sluice_restore']) {
  test(`a restore continues if somebody drops the ${what} that it has replaced`, async () => {
    await failRestoreAt(({ sql, body }) => sql.includes('restore_plan') && body.includes('isDone'));
    await sluice.clickhouse.query(`DROP ${what}`);
    await sendEvent(`without ${what}`);
    await sluice.admin('backup', 'restore', 'one', '--yes');
    await assertNothingLeft();
    assert.deepEqual(await seen(), ['of the backup', `without ${what}`]);
  });

  test(`a restore begins again if somebody drops the ${what} that it still needs`, async () => {
    await failRestoreAt(startsWith('RENAME TABLE sluice_restore.stored_events TO'));
    await sluice.clickhouse.query(`DROP ${what}`);
    await sluice.admin('backup', 'restore', 'one', '--yes');
    await assertNothingLeft();
    assert.deepEqual(await seen(), ['of the backup']);
  });
}

test('a restore that was paused before it dropped what it had replaced drops nothing of another one', async () => {
  await sluice.admin('backup', 'create', 'other');
  const [first, second] = gates;
  first.hold(afterNote('isDone', () => true));
  const one = restoreBy(first.url);
  await untilHeld(first);
  second.hold(startsWith('RESTORE DATABASE'));
  const two = restoreBy(second.url, 'other');
  await handLocksOver(second);
  first.release();
  await assert.rejects(one, /the backup one is restored; another restore has started since/);
  second.release();
  assert.equal((await two).name, 'other');
  await sluice.admin('backup', 'restore', 'one', '--yes');
  assert.deepEqual(await seen(), ['of the backup']);
});

test('a restore that was paused before it began lets no round of deletions begin while another one exchanges', async () => {
  const [first, second] = gates;
  // The first process is about to read whether a plan is recorded.
  first.hold(readsTables);
  const one = restoreBy(first.url);
  await untilHeld(first);
  second.hold(startsWith('EXCHANGE TABLES'));
  const two = restoreBy(second.url);
  await handLocksOver(second);
  first.release();
  await assert.rejects(one, /another restore has started/);
  await withRedis(sluice, async (redis) =>
    assert.equal(await redis.exists(registryKeys.restoringBackup), 1, 'nobody is deleted meanwhile'),
  );
  second.release();
  await two;
  assert.deepEqual(await seen(), ['of the backup']);
});

test('leaves tables alone that are not of the schema, whether the backup or the database has them', async () => {
  await sluice.rows('CREATE TABLE ours (a UInt8) ENGINE = MergeTree ORDER BY a AS SELECT 1 AS a');
  await sluice.rows('CREATE TABLE theirs ENGINE = MergeTree ORDER BY a AS SELECT 1 AS a');
  await sluice.admin('backup', 'create', 'more');
  await sluice.rows('INSERT INTO ours VALUES (2)');
  await sluice.rows('DROP TABLE theirs SYNC');
  await sluice.admin('backup', 'restore', 'more', '--yes');
  assert.deepEqual(await sluice.rows('SELECT count() AS rows FROM ours'), [{ rows: 2 }]);
  await sluice.rows('DROP TABLE ours SYNC');
  assert.deepEqual(await sluice.rows("SELECT name FROM system.tables WHERE name = 'theirs'"), []);
});

test('if two processes make a backup with the same name at once, one of them makes it, and its entry stays', async () => {
  const results = await Promise.allSettled([1, 2, 3].map(() => sluice.admin('backup', 'create', 'twice')));
  const made = results.flatMap((result) =>
    result.status === 'fulfilled' ? [result.value as BackupView] : [],
  );
  assert.equal(made.length, 1);
  for (const result of results)
    if (result.status === 'rejected') assert.match(String(result.reason), /there is already a backup twice/);
  const [only] = made as [BackupView];
  const listed = (await sluice.admin('backup', 'list')) as BackupView[];
  assert.deepEqual(
    listed.find(({ name }) => name === 'twice'),
    only,
  );
  await withRedis(sluice, async (redis) =>
    assert.equal(await keepsSince(redis, 'twice', only.began_at), true),
  );
});

const keepsHashes = (name: string) =>
  withRedis(sluice, async (redis) => {
    const noted = (await readBackups(redis)).find((backup) => backup.name === name);
    return noted !== undefined && (await keepsSince(redis, name, noted.began_at));
  });

test('a paused process whose backup fails does not remove the entry of a backup that another process continues', async () => {
  const [gate] = gates;
  gate.hold(startsWith('BACKUP TABLE'));
  const paused = runAdmin(['backup', 'create', 'overtaken'], { ...sluice.env, CLICKHOUSE_URL: gate.url });
  await untilHeld(gate);
  const lock = registryKeys.backupLock;
  await withRedis(sluice, (redis) => redis.set(lock, 'another', 'PX', 60_000));
  await sluice.clickhouse.query("BACKUP TABLE sluice.stored_keys TO Disk('backups', 'overtaken.keys')");
  gate.release();
  await assert.rejects(paused, /another process has continued the backup overtaken/);
  assert.equal(await keepsHashes('overtaken'), true);
  await withRedis(sluice, (redis) => redis.del(lock));
  assert.equal(((await sluice.admin('backup', 'create', 'overtaken')) as BackupView).status, 'complete');
});

test('a process that was paused until another one had completed its backup does not remove its entry', async () => {
  const [gate] = gates;
  gate.hold(startsWith('BACKUP TABLE'));
  const paused = await startChild({
    name: 'backup create',
    program: {
      command: process.execPath,
      args: [adminProgram, 'backup', 'create', 'completed'],
      env: { ...sluice.env, CLICKHOUSE_URL: gate.url },
    },
    healthy: () => gate.held.length > 0,
    healthyDeadlineMs: 60_000,
  });
  paused.sigstop();
  await withRedis(sluice, (redis) => redis.del(registryKeys.backupLock));
  const made = (await sluice.admin('backup', 'create', 'completed')) as BackupView;
  gate.release();
  paused.sigcont();
  assert.equal((await paused.exited).code, 1);
  assert.match(paused.output(), /another process has continued the backup completed/);
  const listed = (await sluice.admin('backup', 'list')) as BackupView[];
  assert.deepEqual(
    listed.find(({ name }) => name === 'completed'),
    made,
  );
  assert.equal(await keepsHashes('completed'), true);
});

test('no backup is made beside another one, even one whose process was killed', async () => {
  await withRedis(sluice, (redis) => redis.set(registryKeys.backupLock, 'another', 'PX', 1_500));
  const begunMs = performance.now();
  await sluice.admin('backup', 'create', 'after');
  assert.ok(performance.now() - begunMs > 1_000, 'it has waited');
  await sluice.clickhouse.query(
    `CREATE TABLE sluice.slow ENGINE = MergeTree ORDER BY tuple()
    AS SELECT randomString(1048576) AS text FROM numbers(4)`,
  );
  const backup = `BACKUP TABLE sluice.slow TO Disk('backups', 'slow.keys') ASYNC`;
  await sluice.clickhouse.query(`${backup} SETTINGS max_backup_bandwidth = 100000`);
  await assert.rejects(
    sluice.admin('backup', 'create', 'beside'),
    /ClickHouse is making the backup slow.keys: wait until that is done/,
  );
  await sluice.clickhouse.query("KILL QUERY WHERE startsWith(query, 'BACKUP TABLE sluice.slow') SYNC");
  await sluice.clickhouse.query('DROP TABLE sluice.slow SYNC');
  await sluice.admin('backup', 'create', 'beside');
});

test('no backup is made while a restore runs, and one during which a backup was restored fails', async () => {
  const [gate] = gates;
  gate.hold(startsWith('BACKUP TABLE'));
  const env = { ...sluice.env, CLICKHOUSE_URL: gate.url };
  const made = runAdmin(['backup', 'create', 'mixed'], env);
  await untilHeld(gate);
  await sluice.admin('backup', 'restore', 'one', '--yes');
  gate.release();
  await assert.rejects(made, /the backup failed: another backup was restored meanwhile/);
  await assert.rejects(
    sluice.admin('backup', 'restore', 'mixed', '--yes'),
    /the backup mixed has no end mark/,
  );
  gate.hold(startsWith('EXCHANGE TABLES'));
  const restored = restoreBy(gate.url);
  await untilHeld(gate);
  await assert.rejects(sluice.admin('backup', 'create', 'mixed2'), /a backup is being restored/);
  gate.release();
  await restored;
});

test('a backup of another schema is not restored, and nothing is left of it', async () => {
  const before = await seen();
  await sluice.clickhouse.query("INSERT INTO sluice.migrations (name) VALUES ('9999_newer')");
  await sluice.admin('backup', 'create', 'newer');
  await sluice.clickhouse.query("DELETE FROM sluice.migrations WHERE name = '9999_newer'");
  await assert.rejects(
    sluice.admin('backup', 'restore', 'newer', '--yes'),
    /the backup newer cannot be restored: the database has the migration 9999_newer of a newer version/,
  );
  await assertNothingLeft();
  assert.deepEqual(await seen(), before);
});

test('a backup whose end is marked is not restored without its second part', async () => {
  const unkept = 'sluice.deletion_evidence, sluice.deletion_references';
  for (const [what, name] of [
    [`DATABASE sluice EXCEPT TABLES ${unkept}`, 'keyless'],
    ['TABLE sluice.migrations', 'keyless/end'],
  ])
    await sluice.clickhouse.query(`BACKUP ${what} TO Disk('backups', '${name}')`);
  await assert.rejects(
    sluice.admin('backup', 'restore', 'keyless', '--yes'),
    /the restore failed: keyless\.keys, a part of the backup keyless, is missing on the backup disk/,
  );
  await assertNothingLeft();
});

test('a restore that was paused before the first exchange exchanges nothing once Redis was emptied and loaded', async () => {
  await sendEvent('before the loss');
  const before = await seen();
  const [gate] = gates;
  for (const isLoaded of [true, false]) {
    gate.hold(afterNote('"tables', readsTables));
    const restored = restoreBy(gate.url);
    await untilHeld(gate);
    if (isLoaded) {
      // The epoch stays the same, and rounds of deletions may begin.
      await withRedis(sluice, (redis) => redis.del(registryKeys.restoringBackup));
    } else {
      await withRedis(sluice, (redis) => redis.flushall());
      for (const command of ['restore', 'bootstrap'])
        await assert.rejects(
          sluice.admin(command),
          /the restore of one was interrupted: .* drop the ClickHouse database sluice_restore first/,
        );
    }
    gate.release();
    await assert.rejects(restored, /Redis was emptied or loaded meanwhile/);
    assert.deepEqual(await seen(), before);
  }
  assert.equal((await restoreBy(gate.url)).state, 'kept');
  assert.deepEqual(await seen(), ['of the backup']);
});

test('a restore does not end if Redis is emptied while it copies what Redis knows', async () => {
  await sluice.admin('accounts', 'create', 'Since', '--environment', 'Main');
  const names = async () =>
    ((await sluice.admin('accounts', 'list')) as { name: string }[]).map(({ name }) => name).sort();
  const known = await names();
  const [gate] = gates;
  gate.hold(startsWith('INSERT INTO registry'));
  const restored = restoreBy(gate.url);
  await untilHeld(gate);
  await withRedis(sluice, (redis) => redis.flushall());
  gate.release();
  await assert.rejects(restored, /Redis was emptied or loaded meanwhile/);
  assert.equal((await restoreBy(gate.url)).state, 'kept');
  assert.deepEqual(await names(), known);
  assert.deepEqual(await seen(), ['of the backup']);
});

test('no new deployment is created while a backup is restored into an empty Redis and an empty ClickHouse', async () => {
  for (const process of [...sluice.api, ...sluice.workers]) await process.stop();
  await withRedis(sluice, (redis) => redis.flushall());
  await sluice.clickhouse.query('DROP DATABASE sluice SYNC');
  const killed = runProgram('src/admin/main.js', ['backup', 'restore', 'one', '--yes'], {
    ...sluice.env,
    CRASH_AT: 'backup_staged',
  });
  await assert.rejects(killed, /ended with SIGKILL/);
  await endLocks();
  for (const command of ['bootstrap', 'restore'])
    await assert.rejects(sluice.admin(command), /a backup is being restored, or its restore was interrupted/);
  // A process that had looked earlier creates a deployment meanwhile.
  const [gate] = gates;
  gate.hold(({ sql }) => sql.includes('INSERT INTO sluice_restore.restore_plan'));
  const overtaken = restoreBy(gate.url);
  await untilHeld(gate);
  await withRedis(sluice, (redis) => redis.set(registryKeys.epoch, 'another'));
  gate.release();
  await assert.rejects(overtaken, /Redis was emptied or loaded meanwhile/);
  await withRedis(sluice, (redis) => redis.flushall());
  // A start waits for the process that exchanges the tables.
  gate.hold(startsWith('EXCHANGE TABLES'));
  const restored = restoreBy(gate.url);
  await untilHeld(gate);
  const started = sluice.admin('bootstrap') as Promise<{ created: boolean }>;
  await until(async () => waits(registryKeys.loading), 'the start asks whether it may load Redis');
  gate.release();
  assert.equal((await restored).state, 'restored');
  assert.equal((await started).created, false);
  assert.deepEqual(await seen(), ['of the backup']);
  const accounts = (await sluice.admin('accounts', 'list')) as { account_id: string }[];
  assert.deepEqual(
    accounts.map(({ account_id }) => account_id),
    [sluice.bootstrap.account_id],
  );
});
