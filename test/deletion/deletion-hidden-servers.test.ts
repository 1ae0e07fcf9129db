// Hidden users on two ClickHouse servers: no query shows or counts their rows, not even those with a part's extreme values, and however
// ClickHouse finds its answer. No merge, move, restore or restart brings them back before they are erased.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { deleteRows, MutationStoodStill } from '../../src/clickhouse/mutate.js';
import { createScratch, dropScratch, scratchName } from '../../src/clickhouse/scratch.js';
import { connectServers, serversOf } from '../../src/clickhouse/servers.js';
import { shardNumberSpacing } from '../../src/clickhouse/store.js';
import { readConfig } from '../../src/config.js';
import { namePrefix } from '../../src/privacy/deletion/round-tables.js';
import { userTables } from '../../src/privacy/deletion/user-tables.js';
import type { Redis } from '../../src/redis/client.js';
import { registryKeys, shardOf } from '../../src/redis/keys.js';
import { runDeletionRound } from '../../workers/delete.js';
import { expireRows } from '../../workers/retention.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { type ClickHouseGate, startClickHouseGate } from '../harness/clickhouse-gate.js';
import {
  getToken,
  hurryRounds,
  readStatus,
  sendEvents,
  showDeletion,
  submitAccepted,
  submitNow,
  untilComplete,
  untilStored,
} from '../harness/deletion.js';
import { maskingEnvironment } from '../harness/environment.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { until, within } from '../harness/wait.js';
import { roundOptions } from '../support/deletion-world.js';

const shards = 2;
let sluice: SluiceHandle;
let token: string;
/** One environment on each server, in the shard of the same number. */
let appIds: readonly string[];

before(async () => {
  sluice = await startSluice({
    clickhouseServers: 2,
    env: { SHARDS: String(shards), JOB_LOCK_MS: '1000', ...maskingEnvironment },
  });
  const names = Array.from({ length: 12 }, (_, index) => `Environment ${index}`);
  const account = await createTestAccount(sluice, 'Hidden', names);
  token = await getToken(sluice, account);
  appIds = [0, 1].map((server) => account.appIds.find((id) => shardOf(id, shards) === server) ?? '');
  for (const [server, appId] of appIds.entries()) await storeLastYear(server, appId);
});

after(async () => {
  await sluice?.stop();
});

/** Stores a part of a year ago. Of each counted value the user who goes has the least and the most, and somebody else the others. */
async function storeLastYear(server: number, appId: string): Promise<void> {
  const first =
    'toUInt64(toUnixTimestamp(toStartOfMonth(now()) - INTERVAL 1 YEAR + INTERVAL 1 DAY)) * 1000000';
  const rows = ['go', 'stay', 'go'].map(
    (identity, at) =>
      `SELECT '${appId}', '${identity}', 'event ${at}', ${first} + ${shardNumberSpacing * at + server}, now64(3) - INTERVAL 1 YEAR`,
  );
  await ask(
    server,
    `INSERT INTO stored_events (app_id, identity, event, segment, received_at) ${rows.join(' UNION ALL ')}
      SETTINGS log_comment = 'store asked by a test'`,
  );
}

/** Queries a server as the user `reader`, or as one who may do everything. */
async function ask(server: number, sql: string, asReader = false): Promise<string> {
  const { origin, reader, tester } = sluice.clickhouses[server] ?? sluice.clickhouse;
  const { name, password } = asReader ? reader : tester;
  const reply = await fetch(`${origin}/?database=${sluice.database}`, {
    method: 'POST',
    body: sql,
    headers: { 'X-ClickHouse-User': name, 'X-ClickHouse-Key': password },
  });
  const text = (await reply.text()).trim();
  assert.equal(reply.status, 200, text);
  return text;
}

const servers = [0, 1];
const one = ['event 1', 'stay'];

/** Asserts that every way of asking gives only the rows of the user who stays. */
async function assertHidden(place = servers): Promise<void> {
  for (const server of servers) {
    // The views span both servers.
    for (const table of ['events', 'user_events']) {
      const found = await ask(server, `SELECT event, identity FROM ${table} ORDER BY event FORMAT TSV`, true);
      assert.deepEqual(
        found.split('\n').map((line) => line.split('\t')),
        [one, one],
      );
    }
    const here = place.filter((at) => at === server).length;
    // ClickHouse answers these from descriptions of parts or from rows, with sorting keys and without.
    const old = 'WHERE segment < toUInt64(toUnixTimestamp64Micro(now64(6) - INTERVAL 30 DAY))';
    for (const more of [old, `${old} AND app_id != ''`])
      for (const settings of ['', 'SETTINGS optimize_use_implicit_projections = 0', 'SETTINGS final = 1'])
        assert.equal(
          await ask(server, `SELECT count() FROM stored_events ${more} ${settings}`, settings === ''),
          String(here),
          `${more} ${settings}`,
        );
    const spread = await ask(
      server,
      `SELECT max(segment) - min(segment), uniqExact(event), min(event) = max(event) FROM stored_events ${old} FORMAT TSV`,
    );
    if (here === 1) assert.equal(spread, '0\t1\t1');
  }
}

async function maskedRows(): Promise<number> {
  const counts = userTables.map((table) => `SELECT countIf(_row_exists = 0) AS masked FROM ${table}`);
  const sql = `SELECT sum(masked) FROM (${counts.join(' UNION ALL ')}) SETTINGS apply_deleted_mask = 0`;
  const found = await Promise.all(servers.map((server) => ask(server, sql)));
  return found.reduce((sum, text) => sum + Number(text), 0);
}

test('rows of hidden users are counted nowhere, and stay hidden until they are erased', async () => {
  await withRedis(sluice, (redis) => redis.set(registryKeys.erasureRest, '1', 'PX', 3_600_000));
  await sluice.admin('backup', 'create', 'shown');
  const requestId = await submitAccepted(sluice, token, [{ identity: 'go' }]);
  const untilGone = async () => {
    await hurryRounds(sluice);
    const isGone = async () => {
      const { text } = await readStatus(sluice, token, requestId);
      return /"state":"hidden"|"status":"complete"/.test(text);
    };
    await until(isGone, { deadlineMs: 300_000, what: 'the users are hidden' });
  };
  await untilGone();
  await assertHidden();
  assert.equal(await maskedRows(), 4);
  await sluice.admin('backup', 'create', 'masked');

  for (const server of sluice.clickhouses.toReversed()) await server.kill9();
  for (const server of sluice.clickhouses) await server.restart();
  await assertHidden();
  assert.equal(await maskedRows(), 4);

  const [, far = ''] = appIds;
  for (const to of servers) {
    await sluice.admin('shards', 'move', String(shardOf(far, shards)), '--to', String(to));
    await assertHidden([0, to]);
  }
  for (const server of servers)
    for (const table of userTables) await ask(server, `OPTIMIZE TABLE ${table} FINAL`);
  await assertHidden();

  // One backup has masks, and the restore erases the masked rows; the other one is from before the masks, and has the rows.
  for (const name of ['masked', 'shown']) {
    await sluice.admin('backup', 'restore', name, '--yes');
    await untilGone();
    await assertHidden();
  }

  await withRedis(sluice, (redis) => redis.del(registryKeys.erasureRest, registryKeys.deletionRound));
  await untilComplete(sluice, token, requestId, 300_000);
  assert.equal(await maskedRows(), 0);
  await assertHidden();
});

/** Stops the worker while a round or run of this process uses gates before both servers. */
async function withGates(
  work: (redis: Redis, clickhouse: ClickHouseClient, gates: readonly ClickHouseGate[]) => Promise<void>,
): Promise<void> {
  const [worker] = sluice.workers;
  worker?.sigstop();
  const gates = await Promise.all(sluice.clickhouses.map(({ testerUrl }) => startClickHouseGate(testerUrl)));
  const clickhouse = connectServers({ urls: gates.map(({ url }) => url), database: sluice.database });
  try {
    await withRedis(sluice, async (redis) => {
      await redis.del(registryKeys.maintenanceLock);
      await work(redis, clickhouse, gates);
    });
  } finally {
    worker?.sigcont();
    await clickhouse.close();
    for (const gate of gates) await gate.close();
  }
}

/** An account with a single environment, on each server. */
async function accountOnEach(): Promise<readonly TestAccount[]> {
  const accounts: TestAccount[] = [];
  while (!(accounts[0] && accounts[1])) {
    const account = await createTestAccount(sluice, 'Narrow', ['Main Production']);
    accounts[shardOf(account.appIds[0] ?? '', shards)] = account;
  }
  return accounts;
}

test('a server without room, or where a mutation stands still, holds up only deletions of its own accounts', async () => {
  const accounts = await accountOnEach();
  const tokens = await Promise.all(accounts.map((account) => getToken(sluice, account)));
  /** How a mutation ends that stands still. */
  const standStill = async (far: ClickHouseClient): Promise<unknown> => {
    await far.command({ query: 'SYSTEM STOP MERGES stored_events' });
    let nowMs = 0;
    const pause = async () => {
      nowMs += 60_000;
    };
    const removal = { condition: "identity = 'nobody' AND notEmpty('stands')", mark: 'stands' };
    const error = await deleteRows(far, 'stored_events', removal, { nowMs: () => nowMs, pause }).catch(
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof MutationStoodStill);
    await far.command({ query: 'SYSTEM START MERGES stored_events' });
    return error;
  };
  const ids: string[] = [];
  for (const state of ['no_room', 'mutation_failed']) {
    const users = [{ identity: state }];
    for (const { appIds } of accounts) await sendEvents(sluice, appIds[0] ?? '', 'go', users);
    await untilStored(sluice);
    await withGates(async (redis, clickhouse, [, gate]) => {
      const [near = '', far = ''] = await Promise.all(
        tokens.map((itsToken) => submitAccepted(sluice, itsToken, users)),
      );
      ids.push(near, far);
      if (state === 'no_room') gate?.refuse(({ sql }) => sql.includes('system.disks'), 243);
      else {
        // The round of one worker is held up. Those of all workers then leave the server out.
        const other = connectServers({
          urls: sluice.clickhouses.map(({ testerUrl }) => testerUrl),
          database: sluice.database,
        });
        const error = await standStill(serversOf(other).all[1] as ClickHouseClient);
        const crash = (point: string) => {
          if (point === 'keys_kept') throw error;
        };
        await redis.del(registryKeys.deletionRound);
        await assert.rejects(
          runDeletionRound({ ...(await roundOptions(redis, other)), crash }),
          MutationStoodStill,
        );
        await other.close();
      }
      await redis.del(registryKeys.deletionRound);
      await runDeletionRound(await roundOptions(redis, clickhouse));
      const [completed, held] = await Promise.all([near, far].map((id) => showDeletion(sluice, id)));
      assert.deepEqual([completed?.status, held?.state], ['complete', state]);
      await redis.del(registryKeys.stoodStill(1));
    });
    // A further request of its account would wait for this one.
    await untilComplete(sluice, tokens[1] ?? '', ids.at(-1) ?? '');
  }
});

test('a run of retention goes on with the next server when one fails', async () => {
  const accounts = await accountOnEach();
  const its = accounts.map(({ appIds }) => appIds[0] ?? '');
  for (const [server, appId] of its.entries()) {
    await storeLastYear(server, appId);
    await sluice.admin('environments', 'set', appId, '--retain-days', '30');
  }
  const left = async () => {
    const sql = (appId: string) => `SELECT count() FROM stored_events WHERE app_id = '${appId}'`;
    return (await Promise.all(its.map((appId, server) => ask(server, sql(appId))))).map(Number);
  };
  await withGates(async (redis, clickhouse, [gate]) => {
    gate?.refuse(({ sql }) => sql.includes('retention_run_'), 241);
    const context = { ...(await roundOptions(redis, clickhouse)), config: readConfig({}) };
    await assert.rejects(expireRows(context, Date.now()));
    assert.deepEqual(await left(), [3, 0]);
    gate?.pass();
    assert.equal(await expireRows(context, Date.now()), 'done');
    assert.deepEqual(await left(), [0, 0]);
  });
});

/** What a worker that was killed may leave on a server. */
const leftovers: Readonly<Record<string, (far: ClickHouseClient) => Promise<void>>> = {
  'merges are stopped': async (far) => {
    await far.command({ query: 'SYSTEM STOP MERGES stored_events' });
  },
  'a mutation waits for a table that is gone': async (far) => {
    const keys = scratchName(far, `${namePrefix}dead_keys`);
    await createScratch(far, keys, 'identity String');
    await far.command({ query: 'SYSTEM STOP MERGES stored_events' });
    await far.command({
      query: `ALTER TABLE stored_events DELETE WHERE identity IN (SELECT identity FROM ${keys})`,
      clickhouse_settings: { mutations_sync: '0' },
    });
    await dropScratch(far, [keys]);
    await far.command({ query: 'SYSTEM START MERGES stored_events' });
  },
};

for (const [what, leave] of Object.entries(leftovers))
  test(`a deletion is complete within a minute though ${what} on a server that seemed to be away for a moment`, async () => {
    const [, appId = ''] = appIds;
    await sendEvents(sluice, appId, 'go', [{ identity: what }]);
    await untilStored(sluice);
    await withGates(async (redis, clickhouse, [, gate]) => {
      await submitNow(sluice, token, [{ identity: what }]);
      const options = await roundOptions(redis, clickhouse);
      await leave(serversOf(clickhouse).all[1] as ClickHouseClient);
      // The round has chosen its requests when it asks which copy of the data the server has.
      let [isChosen, looks] = [false, 0];
      gate?.refuse(({ sql }) => {
        isChosen ||= sql.includes('FROM witness');
        return isChosen && sql.includes('FROM server_number') && ++looks === 1;
      }, 241);
      assert.equal(await within(runDeletionRound(options), 60_000), 1);
      assert.equal(gate?.faked.length, 1);
    });
  });
