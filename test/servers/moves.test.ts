// Moves of shards between two ClickHouse servers beside other work: an index of keys that grows or is rebuilt, a server that is away, other
// moves, and processes that were paused.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before } from 'node:test';
import type { ShardView } from '../../src/admin/shards.js';
import { showUserEverywhere } from '../../src/admin/user-everywhere.js';
import { type ClickHouseClient, connectClickHouse } from '../../src/clickhouse/client.js';
import { readMarkers, writeMarker } from '../../src/clickhouse/key-index.js';
import { endOwnership, removeRows, takeOver } from '../../src/clickhouse/move-rows.js';
import { connectServers, serversOf } from '../../src/clickhouse/servers.js';
import { readConfig } from '../../src/config.js';
import { noCrash } from '../../src/crash-point.js';
import { createLog } from '../../src/log.js';
import { withMaintenanceLock } from '../../src/privacy/deletion/maintenance-lock.js';
import { connect, untilReady } from '../../src/redis/client.js';
import { rebuildText } from '../../src/redis/key-rebuild.js';
import { registryKeys, shardKeys, shardOf } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { type ShardServers, shardServersKey } from '../../src/registry/documents.js';
import { readSecondCopy } from '../../src/registry/second-copy.js';
import { refreshShardTable } from '../../src/registry/shard-servers.js';
import { type IndexOptions, indexKeys } from '../../workers/index-keys.js';
import { createTestAccount } from '../harness/accounts.js';
import { runAdmin, runMigrations } from '../harness/administration.js';
import { type ClickHouseHandle, credentials } from '../harness/clickhouse.js';
import { type ClickHouseGate, startClickHouseGate } from '../harness/clickhouse-gate.js';
import { sendEvents } from '../harness/deletion.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { paths, post } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { runProgram } from '../harness/sluice.js';
import { until } from '../harness/wait.js';
import { test } from '../support/test.js';

const shards = 4;
/** The shard that the tests move. One server has shards 0 and 2, the other one 1 and 3. */
const shard = 0;

let sluice: SluiceHandle;
/** A connection to each server. */
let clients: readonly [ClickHouseClient, ClickHouseClient];
/** An environment of each shard. */
const appIds = new Map<number, string>();
let redis: IndexOptions['redis'];
let epoch: string;
const log = createLog('test', 'silent');

before(async () => {
  sluice = await startSluice({ clickhouseServers: 2, workers: 0, env: { SHARDS: String(shards) } });
  const [first, second] = sluice.clickhouses as [ClickHouseHandle, ClickHouseHandle];
  const connectTo = ({ testerUrl: url }: ClickHouseHandle) => connectClickHouse({ url, database: 'sluice' });
  clients = [connectTo(first), connectTo(second)];
  redis = connect(readConfig(sluice.env), log);
  await untilReady(redis, 20_000);
  epoch = (await redis.get(registryKeys.epoch)) ?? '';
  while (appIds.size < shards)
    for (const id of (await createTestAccount(sluice, 'Moved', ['One', 'Two', 'Three'])).appIds)
      appIds.set(shardOf(id, shards), id);
});

after(async () => {
  redis?.disconnect();
  for (const client of clients ?? []) await client.close();
  await sluice?.stop();
});

const move = (to: number, which = shard) => sluice.admin('shards', 'move', String(which), '--to', String(to));
const moved = { server: 1, moved: [shard] };

async function ask(server: number, sql: string): Promise<string> {
  const { origin, tester } = sluice.clickhouses[server] as ClickHouseHandle;
  const url = `${origin}/?database=sluice&mutations_sync=2`;
  const reply = await fetch(url, { method: 'POST', headers: credentials(tester), body: sql });
  const text = await reply.text();
  assert.equal(reply.status, 200, text);
  return text.trim();
}

async function placeOf(which = shard): Promise<ShardView> {
  const listed = (await sluice.admin('shards', 'list')) as ShardView[];
  return listed[which] as ShardView;
}

/** Does some work while a worker runs; settles when all records are stored. */
async function withWorker(work: () => Promise<unknown>): Promise<void> {
  const worker = await sluice.addWorker();
  try {
    await work();
    await until(async () => {
      const waiting = Array.from({ length: shards }, (_, each) => redis.zcard(shardKeys.segments(each)));
      return (await Promise.all(waiting)).every((count) => count === 0);
    }, 'everything is stored');
  } finally {
    await worker.stop();
  }
}

const send = (key: string, which = shard) =>
  post(sluice.baseUrl, paths.track, {
    app_id: appIds.get(which),
    event: key,
    identity: 'ada',
    idempotency_key: key,
  });

const countOf = (event: string) => ask(0, `SELECT count() FROM events WHERE event = '${event}'`);

/** The connection of a worker that is paused, while `meanwhile` happens, before it sends the first statement of this kind. */
function pausedBefore(
  client: ClickHouseClient,
  isIt: (query: string) => boolean,
  meanwhile: () => Promise<unknown>,
): ClickHouseClient {
  let stands = true;
  return new Proxy(client, {
    get: (target, name) => {
      const value = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      if (name !== 'command' && name !== 'exec') return value.bind(target);
      return async (asked: { query: string }) => {
        if (stands && isIt(asked.query)) {
          stands = false;
          await meanwhile();
        }
        return value.call(target, asked);
      };
    },
  });
}

/** Indexes keys like a worker that believes the shard to be on this server. */
const index = (clickhouse: ClickHouseClient) =>
  indexKeys({ redis, clickhouse, epoch, crash: noCrash, log }, shard);

const generationIn = async (client: ClickHouseClient) => (await readMarkers(client)).get(shard)?.generation;
const generationKnown = () => redis.hget(shardKeys.state(shard), 'keys_generation');

test('markers of other shards do not count as keys of a moved one, and its own marker is compared', async () => {
  const [former, next] = clients;
  await withWorker(async () => {
    for (const which of [shard, 2]) await send(`first ${which}`, which);
  });
  await withWorker(() => withRedis(sluice, forgetKeys));
  await withWorker(() => send('second'));
  await index(former);
  // The generation of shard 2 looks like a segment number of shard 0.
  const generation = String((1n << 63n) + 64n);
  assert.ok(await writeMarker(former, 2, { indexedTo: '64', generation }, undefined));
  // A restore may leave such a marker on each server.
  const stale = { indexedTo: '1', generation: String((1n << 63n) + 1n) };
  assert.ok(await writeMarker(next, shard, stale, undefined));
  const before = (await readMarkers(former)).get(shard);
  assert.ok(before);
  assert.deepEqual(await move(1), moved);
  assert.deepEqual([...(await readMarkers(former)).keys()], [2]);
  const after = (await readMarkers(next)).get(shard);
  assert.equal(after?.indexedTo, before.indexedTo);
  assert.equal(
    await ask(1, `SELECT count() FROM stored_keys WHERE hash = 0 AND segment = ${stale.generation}`),
    '0',
  );
  // A higher generation makes workers load their filters again.
  assert.ok(after !== undefined && after.generation > before.generation);
  assert.equal(await generationKnown(), after.generation);
  await move(0);
});

test('a worker that was paused during a move writes neither a key nor a marker on the old server', async () => {
  const [former, next] = clients;
  await withWorker(() => send('third'));
  const isMarkers = (query: string) => query.includes('SELECT rest AS shard');
  const left = `SELECT count() FROM stored_keys WHERE hash = 0 AND rest = ${shard} OR hash != 0 AND segment % 64 = ${shard}`;
  await assert.rejects(index(pausedBefore(former, isMarkers, () => move(1))), /exchanged or moved meanwhile/);
  assert.equal(await ask(0, left), '0');
  await move(0);
  // The same holds if the worker was paused after it had read the marker.
  const isKeys = (query: string) => query.startsWith('INSERT INTO stored_keys');
  await assert.rejects(index(pausedBefore(former, isKeys, () => move(1))), /exchanged or moved meanwhile/);
  assert.equal(await ask(0, left), '0');
  await index(next);
  await move(0);
  await withWorker(async () => {
    await withRedis(sluice, forgetKeys);
    await send('third');
  });
  assert.equal(await countOf('third'), '1');
});

test('a rebuild of the index that continues on the former server of a moved shard begins again', async () => {
  const [former, next] = clients;
  const keys = `SELECT count() FROM stored_keys FINAL WHERE hash != 0 AND segment % 64 = ${shard}`;
  await index(former);
  const all = await ask(0, keys);
  await ask(0, `ALTER TABLE stored_keys DELETE WHERE hash != 0 AND segment % 64 = ${shard}`);
  const asked = rebuildText({ id: randomUUID(), generation: '', doneTo: '0', to: '0' });
  const state = shardKeys.state(shard);
  assert.equal(await runScript(redis, scripts.noteRebuild, [state], [epoch, '', asked]), 1);
  const before = await generationIn(former);
  // The worker is paused before it adds the keys, and its statement is lost.
  const isKeys = (query: string) => query.startsWith('INSERT INTO stored_keys (hash, rest, segment) ');
  await assert.rejects(index(pausedBefore(former, isKeys, () => move(1))), /exchanged or moved meanwhile/);
  const noted = JSON.parse((await redis.hget(state, 'keys_rebuild')) ?? '') as {
    generation: string;
    to: string;
  };
  assert.equal(noted.generation, before);
  // Records the progress of a worker whose keys reached the old server while the shard was copied.
  const further = JSON.stringify({ ...noted, doneTo: noted.to });
  assert.equal(
    await runScript(redis, scripts.noteRebuild, [state], [epoch, JSON.stringify(noted), further]),
    1,
  );
  assert.equal(await ask(1, keys), '0');
  await index(next);
  assert.equal(await ask(1, keys), all);
  assert.equal(await redis.hexists(state, 'keys_rebuild'), 0);
  await move(0);
});

async function killedAt(point: string, to: number): Promise<void> {
  const args = ['shards', 'move', String(shard), '--to', String(to)];
  const killed = runProgram('src/admin/main.js', args, { ...sluice.env, CRASH_AT: point });
  await assert.rejects(killed, /SIGKILL/, point);
}

test('a move to a server that is away does not begin; one that has changed nothing is reverted without it', async () => {
  const [, second] = sluice.clickhouses as [ClickHouseHandle, ClickHouseHandle];
  const isAway = /ClickHouse server 1 \(from 0\) does not answer/;
  await killedAt('move_noted', 1);
  await second.kill9();
  await assert.rejects(move(1), isAway);
  assert.equal((await placeOf()).moving_to, 1);
  assert.deepEqual(await move(0), { server: 0, moved: [] });
  await assert.rejects(move(1), isAway);
  assert.deepEqual([(await placeOf()).server, (await placeOf()).moving_to], [0, null]);
  await second.restart();
  await killedAt('shard_closed', 1);
  await second.kill9();
  for (const to of [0, 1])
    await assert.rejects(
      move(to),
      /server 1 \(from 0\) does not answer. Shard 0 stores nothing .* "shards move 0 --to 1" continues the move, and "shards move 0 --to 0" reverts it/,
    );
  await second.restart();
  assert.deepEqual(await move(0), { server: 0, moved: [shard] });
  await withWorker(() => send('after the moves'));
  assert.equal(await countOf('after the moves'), '1');
});

/** Starts gates before the servers; returns them and a way to move shards through them. */
async function startGates() {
  const gates = (await Promise.all(sluice.clickhouses.map(({ url }) => startClickHouseGate(url)))) as [
    ClickHouseGate,
    ClickHouseGate,
  ];
  const env = { ...sluice.env, CLICKHOUSE_URL: gates.map(({ url }) => url).join(',') };
  const moveThrough = (to: number, which = shard) =>
    runAdmin(['shards', 'move', String(which), '--to', String(to)], env);
  return { gates, env, moveThrough, close: () => Promise.all(gates.map((gate) => gate.close())) };
}

const isHeld = (gate: ClickHouseGate) => until(() => gate.held.length > 0, 'a statement is held');

test('a move that fails before it has changed a server is forgotten', async () => {
  const { gates, moveThrough, close } = await startGates();
  gates[0].refuse(({ parameters }) => parameters.get('param_prefix') === 'retention_run_', 999);
  await assert.rejects(moveThrough(1), /Refused by the gate/);
  assert.equal(gates[0].faked.length, 1);
  assert.deepEqual([(await placeOf()).server, (await placeOf()).moving_to], [0, null]);
  // The copy that records the move is refused, or that which records its first change; then that which records its end is refused too.
  for (const taken of [0, 1]) {
    let copies = 0;
    gates[0].refuse(({ sql }) => sql.startsWith('INSERT INTO registry') && copies++ >= taken, 999);
    await assert.rejects(moveThrough(1), /Refused by the gate/);
    assert.equal(gates[0].faked.length, 2);
    assert.deepEqual([(await placeOf()).server, (await placeOf()).moving_to], [0, null]);
  }
  await close();
});

test('before a move changes a server, the second copy records that the move cannot be forgotten any more', async () => {
  const { gates, moveThrough, close } = await startGates();
  gates[1].hold(({ sql }) => sql.startsWith('CREATE OR REPLACE VIEW local_events'));
  const moving = moveThrough(1);
  await isHeld(gates[1]);
  const { documents } = await readSecondCopy(clients[0]);
  const { moves } = JSON.parse(documents[shardServersKey] ?? '') as ShardServers;
  assert.deepEqual(
    moves?.map(({ stage, unchanged_by }) => [stage, unchanged_by]),
    [['copy', '']],
  );
  gates[1].release();
  assert.deepEqual(await moving, moved);
  await close();
  await move(0);
});

test('a server that a process opens late for a shard that was moved meanwhile is closed for it again', async () => {
  const { gates, moveThrough, close } = await startGates();
  gates[0].hold(({ sql }) => sql.includes(`SELECT ${shard}, 'door'`));
  const late = moveThrough(0);
  await isHeld(gates[0]);
  assert.deepEqual(await move(1), moved);
  gates[0].release();
  assert.deepEqual(await late, { server: 0, moved: [] });
  await close();
  const refusal = await storeLate(0).catch(String);
  await move(0);
  assert.match(refusal, /Constraint `shard_limits`/);
});

/** Stores a row like a paused worker, under a number above all that the server refuses since earlier moves. */
const storeLate = (server: number) =>
  ask(
    server,
    `INSERT INTO stored_events (app_id, segment) SETTINGS log_comment = 'store events ${4e15 + shard}'
      VALUES ('1', ${4e15 + shard})`,
  );

test('a server that a move opens late, when the shard has moved back, is closed for it again', async () => {
  const { gates, moveThrough, close } = await startGates();
  gates[1].hold(({ sql }) => sql.includes(`SELECT ${shard}, 'door'`) && sql.includes("'open'"));
  const late = moveThrough(1);
  await isHeld(gates[1]);
  assert.deepEqual(await move(1), moved);
  assert.deepEqual(await move(0), { server: 0, moved: [shard] });
  gates[1].release();
  await assert.rejects(late, /another process has continued the move/);
  await close();
  assert.match(await storeLate(1).catch(String), /Constraint `shard_limits`/);
});

test('no shard is moved from a server that was set back, and a move that was under way is reverted', async () => {
  await until(
    async () => (await redis.hexists(registryKeys.witness, 'kept:0')) === 1,
    'the server has seen a number',
  );
  await killedAt('partition_copied', 1);
  const arrived = `SELECT count() FROM stored_events WHERE app_id != '' AND segment % 64 = ${shard}`;
  assert.notEqual(await ask(1, arrived), '0');
  const ready = async () => (await fetch(`${sluice.baseUrl}/health/ready`)).text();
  // A number that is being copied may still arrive after the table was emptied, so the table is emptied again.
  await until(async () => {
    await ask(0, 'TRUNCATE TABLE witness');
    return (await ready()).includes('set back to older data');
  }, 'the server is known to be set back');
  await assert.rejects(move(1), /was set back .* once "shards move 0 --to 0" has reverted the move/);
  assert.deepEqual(await move(0), { server: 0, moved: [shard] });
  assert.equal(await ask(1, arrived), '0');
  await assert.rejects(move(1), /server 0 was set back to older data/);
  assert.deepEqual([(await placeOf()).server, (await placeOf()).moving_to], [0, null]);
  const { recovered } = (await sluice.admin('state', 'recover')) as { recovered: readonly number[] };
  assert.deepEqual(recovered, [0]);
  assert.deepEqual(await move(1), moved);
  await move(0);
});

test('a shard that came to a server after the state to which it was set back may be missing entirely', async () => {
  await withWorker(() => Promise.all([send('came later'), send('was there', 1)]));
  await move(1);
  await until(async () => (await redis.hexists(registryKeys.witness, 'kept:1')) === 1, {
    deadlineMs: 60_000,
    what: 'the server has seen a number',
  });
  const to = Number(await redis.hget(shardKeys.state(1), 'stored_to'));
  await ask(1, 'TRUNCATE TABLE witness');
  // The witness that an older copy of the server would have, which has the other shard completely.
  await ask(
    1,
    `INSERT INTO witness (part, number, stored_to, stored_records) VALUES ('registry', 1, 0, 0), ('0', 1, 64, 1), ('1', 1, ${to}, 1)`,
  );
  const { missing } = (await sluice.admin('state', 'compare')) as {
    missing: readonly { shard: number; records: number | null; after: string | null }[];
  };
  const of = (which: number) => missing.find((each) => each.shard === which);
  assert.deepEqual([of(shard)?.records, of(shard)?.after], [null, null]);
  assert.equal(of(1)?.after, new Date(to / 1000).toISOString());
  assert.deepEqual(((await sluice.admin('state', 'recover')) as { recovered: unknown }).recovered, [1]);
  await move(0);
});

test('a move waits for a restore, and a restore for a move', async () => {
  for (const [held, other] of [
    ['restore', 'move'],
    ['move', 'restore'],
    ['round', 'move'],
    ['move', 'retention'],
  ] as const) {
    const meanwhile = () => withMaintenanceLock(redis, other, async () => 'taken');
    assert.equal(await withMaintenanceLock(redis, held, meanwhile), 'locked', `${held}, ${other}`);
  }
  // A continued move gets the lock too, since the process that had it may have been killed.
  const again = () => withMaintenanceLock(redis, 'move', async () => 'taken');
  assert.equal(await withMaintenanceLock(redis, 'move', again), 'taken');
  const lock = registryKeys.maintenanceLock;
  const [held, heldMs] = ['restore another', 3_600_000];
  await redis.set(lock, held, 'PX', heldMs);
  const moving = move(1);
  await until(async () => (await redis.pttl(lock)) < heldMs / 2, 'the move waits');
  assert.equal(await redis.get(lock), held);
  await redis.del(lock);
  assert.deepEqual(await moving, moved);
  await move(0);
});

/** How many events of Bob, who is in shard 2, each server shows. */
const seen = () =>
  Promise.all([0, 1].map((server) => ask(server, "SELECT count() FROM events WHERE identity = 'bob'")));

test('while two shards are moved at once, no query sees a row twice', async () => {
  await withWorker(() => sendEvents(sluice, appIds.get(2) ?? '', 'stay', [{ identity: 'bob' }]));
  const [slow, other] = [await startGates(), await startGates()];
  // The held process has read which shards are being moved.
  slow.gates[1].hold(({ sql }) => sql.startsWith('CREATE OR REPLACE VIEW local_events'));
  const first = slow.moveThrough(1);
  await isHeld(slow.gates[1]);
  // The other move is held after it has copied all rows of its shard.
  other.gates[0].hold(({ sql }) => sql.includes('AS rows FROM failed_events'));
  const second = other.moveThrough(1, 2);
  await isHeld(other.gates[0]);
  assert.deepEqual(await seen(), ['1', '1']);
  slow.gates[1].release();
  slow.gates[1].hold(({ sql }) => sql.startsWith(`CREATE OR REPLACE TABLE shard_${shard}_is_moved_by`));
  await isHeld(slow.gates[1]);
  assert.deepEqual(await seen(), ['1', '1']);
  slow.gates[1].release();
  assert.deepEqual(await first, moved);
  assert.deepEqual(await seen(), ['1', '1']);
  other.gates[0].release();
  await second;
  assert.deepEqual(await seen(), ['1', '1']);
  for (const { close } of [slow, other]) await close();
  await move(0);
  await move(0, 2);
});

test('while servers are migrated beside a move, no query sees a row twice', async () => {
  const [migrating, moving] = [await startGates(), await startGates()];
  // The held process has read which shards are being moved.
  migrating.gates[1].hold(({ sql }) => sql.startsWith('CREATE OR REPLACE VIEW local_events'));
  const migrated = runMigrations(migrating.env);
  await isHeld(migrating.gates[1]);
  // The move is held after it has copied all rows of its shard.
  moving.gates[0].hold(({ sql }) => sql.includes('AS rows FROM failed_events'));
  const second = moving.moveThrough(1, 2);
  await isHeld(moving.gates[0]);
  assert.deepEqual(await seen(), ['1', '1']);
  migrating.gates[1].release();
  await migrated;
  assert.deepEqual(await seen(), ['1', '1']);
  // The views hide these rows until the shard is stored on that server.
  moving.gates[0].release();
  await second;
  assert.deepEqual(await seen(), ['1', '1']);
  for (const { close } of [migrating, moving]) await close();
  await move(0, 2);
});

test('a process that stood still before it owned a server leaves no rows there', async () => {
  const { gates, moveThrough, close } = await startGates();
  gates[0].hold(({ sql }) => sql.startsWith(`CREATE OR REPLACE TABLE shard_${shard}_is_moved_by`));
  const late = moveThrough(1);
  await isHeld(gates[0]);
  assert.deepEqual(await move(1), moved);
  gates[0].release();
  await assert.rejects(late, /another process has continued the move/);
  for (const server of [0, 1])
    assert.equal(await ask(server, "SELECT count() FROM system.tables WHERE name LIKE '%is_moved_by'"), '0');
  await close();
  await move(0);
});

test('rows are gone when their removal settles, even if it repeats another one of the same second', async () => {
  const [client] = clients;
  const owned = { database: 'sluice', shard: 3, owner: 'aa' };
  await takeOver(client, owned);
  for (let round = 0; round < 12; round += 1) {
    await ask(0, `INSERT INTO stored_keys (hash, rest, segment) VALUES (1, ${round}, 67)`);
    // Rejects if a row is left.
    await removeRows(client, 'stored_keys', owned, 'all');
  }
  await endOwnership(client, owned.shard);
  await assert.rejects(removeRows(client, 'stored_keys', owned, 'all'), /is_moved_by/);
});

test('a moved shard leaves no masked row behind', async () => {
  const [client] = clients;
  const owned = { database: 'sluice', shard: 2, owner: 'bb' };
  await takeOver(client, owned);
  const at = (its: number) => String(4e15 + its);
  await ask(
    0,
    `INSERT INTO stored_events (app_id, identity, segment) SETTINGS log_comment = 'store events ${at(0)}'
      VALUES ('1', 'masked', ${at(owned.shard)}), ('1', 'not', ${at(shard)})`,
  );
  await ask(0, "DELETE FROM stored_events WHERE identity = 'masked' SETTINGS lightweight_deletes_sync = 2");
  const onDisk =
    "SELECT count() FROM stored_events WHERE identity = 'masked' SETTINGS apply_deleted_mask = 0";
  assert.equal(await ask(0, onDisk), '1');
  await removeRows(client, 'stored_events', owned);
  assert.equal(await ask(0, onDisk), '0');
  await ask(0, "ALTER TABLE stored_events DELETE WHERE identity = 'not'");
  await endOwnership(client, owned.shard);
});

test('a look-up that stands still during a move shows what is held on the other server', async () => {
  await withWorker(() => send('looked up'));
  const clickhouse = connectServers(
    sluice.clickhouses.map(({ testerUrl }) => testerUrl),
    'sluice',
  );
  await refreshShardTable(redis, serversOf(clickhouse));
  // From now on the first query to the former server waits until the shard has moved.
  const exec = clickhouse.exec.bind(clickhouse);
  let moving: Promise<unknown> | undefined;
  clickhouse.exec = async (asked: Parameters<typeof exec>[0]) => {
    moving ??= move(1);
    await moving;
    return exec(asked);
  };
  try {
    const context = { redis, clickhouse, config: readConfig(sluice.env), log };
    const environment = await redis.hget(registryKeys.documents, `environment:${appIds.get(shard)}`);
    const { account_id } = JSON.parse(environment ?? '') as { account_id: string };
    const { places } = await showUserEverywhere(context, account_id, { identity: 'ada' });
    assert.ok(places.find(({ app_id }) => app_id === appIds.get(shard))?.events);
  } finally {
    await clickhouse.close();
    await move(0);
  }
});
