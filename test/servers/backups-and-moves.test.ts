// A backup of several servers agrees on where shards are: each shard is on the same server in all of its parts. So shards are moved while
// one is made or restored.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { runAdmin } from '../harness/administration.js';
import { type ClickHouseGate, startClickHouseGate } from '../harness/clickhouse-gate.js';
import { sendEvents } from '../harness/deletion.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { accountInEachShard, listShards } from '../support/servers.js';

let sluice: SluiceHandle;
let gates: readonly [ClickHouseGate, ClickHouseGate];

before(async () => {
  sluice = await startSluice({ clickhouseServers: 2, workers: 1, env: { SHARDS: '2' } });
  const [first, second] = sluice.clickhouses.map(({ url }) => url) as [string, string];
  gates = [await startClickHouseGate(first), await startClickHouseGate(second)];
  // The primary server has shard 0 at first.
  const [appId = ''] = (await accountInEachShard(sluice)).appIds;
  await sendEvents(sluice, appId, 'stay', [{ identity: 'ada' }]);
  await until(async () => (await counts()).join() === '1,0', 'the event is stored');
});

afterEach(() => {
  for (const gate of gates) gate.pass();
});

after(async () => {
  for (const gate of gates ?? []) await gate.close();
  await sluice?.stop();
});

/** How many events of Ada each server has. */
async function counts(): Promise<number[]> {
  const query = "SELECT count() FROM sluice.stored_events WHERE identity = 'ada'";
  return Promise.all(sluice.clickhouses.map(async (server) => Number(await server.query(query))));
}

const move = (server: number) => sluice.admin('shards', 'move', '0', '--to', String(server));
const restore = (name: string) => sluice.admin('backup', 'restore', name, '--yes');

/** Runs a command through the gates. */
function byGates(...words: readonly string[]): Promise<unknown> {
  return runAdmin(words, { ...sluice.env, CLICKHOUSE_URL: gates.map(({ url }) => url).join() });
}

/** Begins a backup and holds it before the second server makes its part. */
async function beginBackup(name: string) {
  const [, gate] = gates;
  gate.hold(({ sql }) => sql.startsWith('BACKUP'));
  const made = byGates('backup', 'create', name);
  await until(() => gate.held.length > 0, 'the primary server has made its part');
  return { gate, made };
}

test('a backup during which a shard was moved fails, and is not restored', async () => {
  const { gate, made } = await beginBackup('failed');
  await move(1);
  gate.release();
  await assert.rejects(made, /the backup failed: a shard was moved meanwhile/);
  await move(0);
  await assert.rejects(restore('failed'), /the backup failed has no end mark/);
  assert.deepEqual(await counts(), [1, 0]);
});

test('a backup with all of its parts is not complete if its command was interrupted', async () => {
  const { gate, made } = await beginBackup('cut');
  await move(1);
  gate.loseAnswers(({ sql }) => sql.startsWith('BACKUP TABLE'));
  gate.release();
  await assert.rejects(made);
  await move(0);
  // The server completes the last part although the command has failed.
  const parts =
    "SELECT count() FROM system.backups WHERE status = 'BACKUP_CREATED' AND name LIKE '%cut.server-1%'";
  await until(async () => Number(await sluice.clickhouses[1]?.query(parts)) === 2, 'all parts are there');
  const listed = (await sluice.admin('backup', 'list')) as { name: string; status: string }[];
  assert.equal(listed.find(({ name }) => name === 'cut')?.status, 'unknown');
  await assert.rejects(restore('cut'), /the backup cut has no end mark/);
  await assert.rejects(sluice.admin('backup', 'create', 'cut'), /a shard was moved meanwhile/);
  assert.deepEqual(await counts(), [1, 0]);
});

const unkept = 'sluice.deletion_evidence, sluice.deletion_references';
const allTables = `DATABASE sluice EXCEPT TABLES ${unkept}`;
const backUp = (server: number, name: string, what = allTables) =>
  sluice.clickhouses[server]?.query(`BACKUP ${what} TO Disk('backups', '${name}')`);

test('a backup whose end is marked is not restored without the second part of one of its servers', async () => {
  await backUp(0, 'keyless');
  await backUp(1, 'keyless.server-1');
  await backUp(0, 'keyless.keys', 'TABLE sluice.stored_keys, TABLE sluice.taken_records');
  await backUp(0, 'keyless/end', 'TABLE sluice.migrations');
  await assert.rejects(
    restore('keyless'),
    /keyless\.server-1\.keys, a part of the backup keyless\.server-1, is missing on the backup disk/,
  );
  assert.deepEqual(await counts(), [1, 0]);
});

test('a restore exchanges nothing if a move of a shard begins before its plan is recorded', async () => {
  await sluice.admin('backup', 'create', 'good');
  const [gate] = gates;
  gate.hold(({ sql }) => sql.includes('INSERT INTO sluice_restore.restore_plan'));
  const restored = byGates('backup', 'restore', 'good', '--yes');
  await until(() => gate.held.length > 0, 'the plan is to be noted');
  const moved = move(1);
  await until(async () => (await listShards(sluice))[0]?.moving_to === 1, 'the move is recorded');
  gate.release();
  await assert.rejects(restored, /a shard was moved meanwhile|it was paused for too long/);
  await moved;
  assert.deepEqual(await counts(), [0, 1]);
  await assert.rejects(restore('good'), /shard 0 was on server 0/);
  // No move would begin if the restore had left anything.
  await move(0);
  await restore('good');
  assert.deepEqual(await counts(), [1, 0]);
});
