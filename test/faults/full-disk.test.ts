// ClickHouse's disk is full to the last byte while a deletion is pending, or when the service starts; then there is room again.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach } from 'node:test';
import { makeKeysBackup } from '../../src/clickhouse/backups.js';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { changeDefinition, NoRoom } from '../../src/clickhouse/definitions.js';
import { migrateServers } from '../../src/clickhouse/migrate.js';
import { createStaging, exchangeTable, readTableIds } from '../../src/clickhouse/staging.js';
import { withMaintenanceLock } from '../../src/privacy/deletion/maintenance-lock.js';
import { registryKeys } from '../../src/redis/keys.js';
import { createCutDisk } from '../chaos/cut-disk.js';
import { createSmallDisk } from '../chaos/small-disk.js';
import { findTools, type Tool } from '../chaos/tools.js';
import { createTestAccount } from '../harness/accounts.js';
import { type ClickHouseHandle, startClickHouse, startClickHouseServers } from '../harness/clickhouse.js';
import {
  getToken,
  readStatus,
  sendEvents,
  submitAccepted,
  untilComplete,
  untilStored,
} from '../harness/deletion.js';
import { startRedis } from '../harness/redis.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startSluice } from '../harness/sluice.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { test } from '../support/test.js';

const tools = await findTools();
const needs = (tool: Tool) => ({ skip: tools.has(tool) ? false : `there is no ${tool} here` });

const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

/** Creates a folder on its own disk. */
const disks = {
  tmpfs: () => {
    const disk = createSmallDisk();
    open.push(disk.remove);
    return disk.dir;
  },
  ext4: () => {
    const [disk, dir] = [createCutDisk(), tempDir('full')];
    open.push(disk.remove);
    disk.mountAt(dir);
    return dir;
  },
} as const;

/** Takes all room of a disk without writing to it. */
function fill(dir: string): void {
  for (const [part, size] of [
    ['large', 0.99],
    ['small', 1],
  ] as const) {
    const { bavail, bsize } = statfsSync(dir);
    spawnSync('fallocate', ['-l', String(Math.floor(bavail * size) * bsize), join(dir, `ballast-${part}`)]);
  }
  for (let number = 0; statfsSync(dir).bavail > 0; number += 1)
    spawnSync('fallocate', ['-l', String(statfsSync(dir).bsize), join(dir, `ballast-${number}`)]);
}

function free(dir: string): void {
  spawnSync('find', [dir, '-maxdepth', '1', '-name', 'ballast-*', '-delete']);
  rmSync(join(dir, 'ballast'), { force: true });
}

async function readiness(sluice: SluiceHandle) {
  const reply = await fetch(`${sluice.baseUrl}/health/ready`);
  return { status: reply.status, ...((await reply.json()) as { ready: boolean; missing: string[] }) };
}

const underWay = `SELECT (SELECT count() FROM system.merges)
  + (SELECT count() FROM system.processes WHERE query_kind = 'Insert' OR query_kind = 'Alter')`;

/** Settles when nothing is written: what is under way when the disk fills fails in the middle, and ends ClickHouse. Merges stay stopped. */
async function quieten(clickhouse: ClickHouseHandle): Promise<void> {
  await clickhouse.query('SYSTEM STOP MERGES');
  await until(async () => (await clickhouse.query(underWay)).trim() === '0', 'nothing is being written');
}

async function fillQuietly(dir: string, ...servers: readonly ClickHouseHandle[]): Promise<void> {
  for (const server of servers) await quieten(server);
  fill(dir);
  for (const server of servers) await server.query('SYSTEM START MERGES');
}

const broken = (clickhouse: ClickHouseHandle) =>
  clickhouse.query("SELECT name FROM system.tables WHERE database = 'sluice' AND create_table_query = ''");

for (const [kind, tool] of [
  ['tmpfs', 'mount'],
  ['ext4', 'loop'],
] as const) {
  test(
    `a deletion on a full disk (${kind}) waits for room, and completes after ClickHouse was killed there`,
    needs(tool),
    async () => {
      const dir = disks[kind]();
      const clickhouse = await startClickHouse({ dir });
      open.push(() => clickhouse.remove());
      const env = { CLICKHOUSE_URL: clickhouse.url, CLICKHOUSE_DATABASE: 'sluice' };
      const sluice = await startSluice({ clickhouse, env });
      open.push(() => sluice.stop());
      const account = await createTestAccount(sluice, 'Full');
      const [appId = ''] = account.appIds;
      const token = await getToken(sluice, account);
      await sendEvents(sluice, appId, 'go', [{ identity: 'ada' }]);
      await sendEvents(sluice, appId, 'stay', [{ identity: 'bob' }]);
      await untilStored(sluice);
      const client = connectClickHouse({ url: clickhouse.url, database: 'sluice' });
      open.push(() => client.close());

      // ClickHouse has the request's users before the disk is full, so that the round is what fails.
      const requestId = await withRedis(sluice, (redis) =>
        withMaintenanceLock(redis, 'restore', async () => {
          const id = await submitAccepted(sluice, token, [{ identity: 'ada' }]);
          await until(
            async () => (await redis.scard(registryKeys.deletionsAwaitingTargetCopy)) === 0,
            'ClickHouse has the users of the request',
          );
          for (const worker of sluice.workers) await worker.stop();
          await fillQuietly(dir, clickhouse);
          for (const worker of sluice.workers) await worker.restart();
          return id;
        }),
      );
      await sendEvents(sluice, appId, 'stay', [{ identity: 'carl' }]);
      const creation = 'CREATE TABLE tried (a UInt8) ENGINE = MergeTree ORDER BY a';
      await assert.rejects(changeDefinition(client, ['tried'], creation), NoRoom);
      await until(
        async () => /"state":"no_room"/.test((await readStatus(sluice, token, requestId)).text),
        'the status says that there is no room',
      );
      await clickhouse.kill9();
      await until(
        async () => (await readiness(sluice)).missing.length > 0,
        'the API says that ClickHouse does not answer',
      );
      assert.deepEqual(await readiness(sluice), {
        status: 200,
        ready: true,
        missing: ['clickhouse: records wait in Redis until it answers'],
      });
      free(dir);
      await clickhouse.restart();
      assert.equal(await broken(clickhouse), '');
      await untilComplete(sluice, token, requestId, 120_000);
      await untilStored(sluice);
      const rows = await sluice.rows<{ identity: string }>(
        'SELECT identity FROM sluice.events ORDER BY identity',
      );
      assert.deepEqual(
        rows.map(({ identity }) => identity),
        ['bob', 'carl'],
      );
      // The worker retries only now and then.
      await until(
        async () => (await readiness(sluice)).missing.length === 0,
        'the API says that nothing is missing',
      );
    },
  );
}

test(
  'a deployment that was stopped starts again on a full disk, and stores what it accepted there',
  needs('mount'),
  async () => {
    const dir = disks.tmpfs();
    const [clickhouse, redis] = await Promise.all([
      startClickHouse({ dir }),
      startRedis({ appendfsync: 'no' }),
    ]);
    open.push(
      () => clickhouse.remove(),
      () => redis.remove(),
    );
    const env = { CLICKHOUSE_URL: clickhouse.url, CLICKHOUSE_DATABASE: 'sluice' };
    const begun = await startSluice({ clickhouse, redis, env });
    await begun.stop();
    await fillQuietly(dir, clickhouse);

    const sluice = await startSluice({ clickhouse, redis, env });
    open.push(() => sluice.stop());
    await sendEvents(sluice, sluice.appId, 'stay', [{ identity: 'ada' }]);
    free(dir);
    await untilStored(sluice);
    assert.deepEqual(await sluice.rows('SELECT identity FROM sluice.events'), [{ identity: 'ada' }]);
  },
);

test(
  'several servers start again on a full disk if each view shows what it should',
  needs('mount'),
  async () => {
    const dir = disks.tmpfs();
    const servers = await startClickHouseServers(2, undefined, dir);
    open.push(
      () => servers[0]?.remove(),
      () => servers[1]?.remove(),
    );
    const migrateAll = () =>
      migrateServers({ urls: servers.map(({ url }) => url), database: 'sluice', cluster: 'sluice' });
    await migrateAll();
    await fillQuietly(dir, ...servers);
    await migrateAll();

    free(dir);
    await servers[1]?.query(
      "CREATE OR REPLACE VIEW sluice.local_events AS SELECT * FROM sluice.stored_events WHERE app_id != ''",
    );
    await fillQuietly(dir, ...servers);
    await assert.rejects(migrateAll(), NoRoom);
  },
);

test(
  'a backup or an exchange of tables without room is refused before it fills the disk, and records are stored',
  needs('mount'),
  async () => {
    const dir = disks.tmpfs();
    const clickhouse = await startClickHouse({ dir });
    open.push(() => clickhouse.remove());
    const env = { CLICKHOUSE_URL: clickhouse.url, CLICKHOUSE_DATABASE: 'sluice' };
    const sluice = await startSluice({ clickhouse, env });
    open.push(() => sluice.stop());
    // A table of somebody else, of 48 MiB that cannot be compressed.
    await clickhouse.query(
      `CREATE TABLE sluice.own ENGINE = MergeTree ORDER BY tuple()
      AS SELECT randomString(1048576) AS text FROM numbers(48)`,
    );
    const room = 40 * 1024 * 1024;
    const leaveRoom = () => {
      const { bavail, bsize } = statfsSync(dir);
      spawnSync('fallocate', ['-l', String(bavail * bsize - room), join(dir, 'ballast-large')]);
    };
    leaveRoom();
    await assert.rejects(
      sluice.admin('backup', 'create', 'large'),
      /the backup failed: ClickHouse's disk for backups has \d+ MiB free, but a backup needs \d+ MiB: make room on it/,
    );
    assert.deepEqual(await sluice.admin('backup', 'list'), []);
    await sendEvents(sluice, sluice.appId, 'stay', [{ identity: 'ada' }]);
    await untilStored(sluice);
    free(dir);
    const first = (await sluice.admin('backup', 'create', 'large')) as { bytes: number };
    assert.ok(first.bytes > room);
    leaveRoom();
    const second = (await sluice.admin('backup', 'create', 'later', '--base', 'large')) as { bytes: number };
    assert.ok(second.bytes < room);
    free(dir);
    // A mask is one file of a mutated part.
    await clickhouse.query('DELETE FROM sluice.own WHERE cityHash64(text) % 2 = 0');
    leaveRoom();
    const third = (await sluice.admin('backup', 'create', 'masked', '--base', 'large')) as { bytes: number };
    assert.ok(third.bytes < room);

    // The disk fills after the first part of a backup, or after the first step of an exchange.
    free(dir);
    const client = connectClickHouse({ url: clickhouse.url, database: 'sluice' });
    open.push(() => client.close());
    await clickhouse.query('INSERT INTO sluice.stored_keys (hash, rest, segment) VALUES (1, 1, 64)');
    await createStaging(client, 'sluice_restore', randomUUID());
    await clickhouse.query('CREATE TABLE sluice_restore.own AS sluice.own');
    const id = (await readTableIds(client, 'sluice_restore')).get('own') ?? '';
    const exchange = { table: 'own', id, staging: 'sluice_restore', database: 'sluice', owner: 'a' };
    for (const worker of sluice.workers) await worker.stop();
    await quieten(clickhouse);
    let isExchanged = false;
    const exchanged = () => {
      isExchanged = true;
    };
    await assert.rejects(exchangeTable(client, exchange, { exchanging: () => fill(dir), exchanged }), NoRoom);
    assert.equal(isExchanged, false);
    const firstPart = { name: 'large', beganAt: new Date(0) };
    await assert.rejects(makeKeysBackup(client, 'sluice', firstPart, false), NoRoom);
  },
);

test(
  'servers that share a disk back up one after another, so that none fills it, and records are stored',
  needs('mount'),
  async () => {
    const dir = disks.tmpfs();
    const clickhouses = await startClickHouseServers(3, undefined, dir);
    for (const clickhouse of clickhouses) open.push(() => clickhouse.remove());
    const [clickhouse] = clickhouses as [ClickHouseHandle];
    const env = {
      CLICKHOUSE_URL: clickhouses.map(({ url }) => url).join(),
      CLICKHOUSE_DATABASE: 'sluice',
      CLICKHOUSE_CLUSTER: 'sluice',
      SHARDS: '3',
    };
    const sluice = await startSluice({ clickhouse, env });
    open.push(() => sluice.stop());
    for (const other of clickhouses.slice(1))
      await other.query(
        `CREATE TABLE sluice.own ENGINE = MergeTree ORDER BY tuple()
        AS SELECT randomString(1048576) AS text FROM numbers(35)`,
      );
    // Enough for one of the two, beside what ClickHouse leaves free.
    const { bavail, bsize } = statfsSync(dir);
    spawnSync('fallocate', ['-l', String(bavail * bsize - 65 * 1024 * 1024), join(dir, 'ballast-large')]);
    await assert.rejects(
      sluice.admin('backup', 'create', 'shared'),
      /ClickHouse's disk for backups has \d+ MiB free, but a backup needs \d+ MiB: make room on it/,
    );
    await sendEvents(sluice, sluice.appId, 'stay', [{ identity: 'ada' }]);
    await untilStored(sluice);
  },
);
