// Moves of shards between two ClickHouse servers beside other work: an index of keys that grows or is rebuilt, a server that is away, other
// moves, and processes that were paused. The API and the worker reach the servers through gates, and so do the moves that have to pause.

import assert from 'node:assert/strict';
import { after, afterEach, before } from 'node:test';
// Only here it is written how Redis calls what a rebuild and the locks leave there.
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import type { TestAccount } from '../harness/accounts.js';
import { runAdmin, runMigrations } from '../harness/administration.js';
import { type Choice, type ClickHouseGate, startClickHouseGate } from '../harness/clickhouse-gate.js';
import { administer, sendEvents, untilStored } from '../harness/deletion.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { paths, post } from '../harness/ingestion.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { type ClickHouseHandle, type SluiceHandle, startSluice } from '../harness/services.js';
import { until } from '../harness/wait.js';
import {
  accountInEachShard,
  ask as askServer,
  killAt,
  listShards,
  type ShardView,
} from '../support/servers.js';
import { test } from '../support/test.js';

/** The shard that the tests move. At first one server has shards 0 and 2, and the other one shard 1. */
const shard = 0;

type Gates = readonly [ClickHouseGate, ClickHouseGate];

let sluice: SluiceHandle;
let account: TestAccount;
/** An environment of each shard. */
let appIds: readonly string[];
let redis: ReturnType<typeof connectTestRedis>;
/** The gates of the API and the worker, and of two further processes. */
let processes: Gates;
let slow: Gates;
let other: Gates;

const gatesBefore = (clickhouses: readonly ClickHouseHandle[]) =>
  Promise.all(clickhouses.map(({ url }) => startClickHouseGate(url))) as Promise<unknown> as Promise<Gates>;
const through = (gates: Gates) => ({ CLICKHOUSE_URL: gates.map(({ url }) => url).join() });

before(async () => {
  sluice = await startSluice({
    clickhouseServers: 2,
    env: { SHARDS: '3' },
    ways: async (clickhouses) => {
      processes = await gatesBefore(clickhouses);
      return through(processes);
    },
  });
  [slow, other] = [await gatesBefore(sluice.clickhouses), await gatesBefore(sluice.clickhouses)];
  redis = connectTestRedis(sluice.redisUrl);
  ({ account, appIds } = await accountInEachShard(sluice));
});

afterEach(() => {
  for (const gate of [processes, slow, other].flat()) gate.pass();
});

after(async () => {
  redis?.disconnect();
  await sluice?.stop();
  for (const gate of [processes, slow, other].flat()) await gate?.close();
});

const move = (to: number, which = shard) => sluice.admin('shards', 'move', String(which), '--to', String(to));
const moveThrough = (gates: Gates, to: number, which = shard) =>
  runAdmin(['shards', 'move', String(which), '--to', String(to)], { ...sluice.env, ...through(gates) });
const moved = (server: number) => ({ server, moved: [shard] });

const ask = (server: number, sql: string) => askServer(sluice.clickhouses[server] as ClickHouseHandle, sql);
const placeOf = async (which = shard) => (await listShards(sluice))[which] as ShardView;

/** The server that has the shard, and the other one. */
async function sides(which = shard): Promise<{ from: 0 | 1; to: 0 | 1 }> {
  const { server, moving_to } = await placeOf(which);
  assert.equal(moving_to, null);
  return server === 0 ? { from: 0, to: 1 } : { from: 1, to: 0 };
}

/** Settles when the event is stored. */
async function send(key: string, which = shard): Promise<void> {
  const app_id = appIds[which];
  await post(sluice.baseUrl, paths.track, { app_id, event: key, identity: 'ada', idempotency_key: key });
  await untilStored(sluice);
}

const countOf = (event: string) => ask(0, `SELECT count() FROM events WHERE event = '${event}'`);
const isHeld = (gate: ClickHouseGate) => until(() => gate.held.length > 0, 'a statement is held');
const startsWith =
  (text: string): Choice =>
  ({ sql }) =>
    sql.startsWith(text);

/** The marker of the shard's index: its generation, and how far it reaches. */
async function markerOn(server: number): Promise<{ generation: bigint; reaches: string }> {
  const text = await ask(
    server,
    `SELECT max(segment), hex(max(owner)) FROM stored_keys WHERE hash = 0 AND rest = ${shard} FORMAT TSV`,
  );
  const [generation = '', reaches = ''] = text.split('\t');
  return { generation: BigInt(generation), reaches };
}

test('markers of other shards do not count as keys of a moved one, and its own marker is compared', async () => {
  for (const which of [shard, 2]) await send(`first ${which}`, which);
  await forgetKeys(redis);
  await send('second');
  await sluice.admin('keys-index', 'rebuild');
  // The generation of shard 2 looks like a segment number of shard 0.
  await ask(
    0,
    `INSERT INTO stored_keys (hash, rest, segment, owner) SELECT hash, rest, (intDiv(segment, 64) + 1) * 64, owner
      FROM stored_keys WHERE hash = 0 AND rest = 2 ORDER BY segment DESC LIMIT 1 SETTINGS insert_allow_materialized_columns = 1`,
  );
  // A restore may leave such a marker on each server.
  const stale = 2n ** 63n + 1n;
  await ask(1, `INSERT INTO stored_keys (hash, rest, segment) VALUES (0, ${shard}, ${stale})`);
  const { generation, reaches } = await markerOn(0);
  const markers = 'SELECT arraySort(groupUniqArray((rest, segment))) FROM stored_keys WHERE hash = 0';
  const others = await ask(0, `${markers} AND rest != ${shard}`);
  assert.deepEqual(await move(1), moved(1));
  assert.equal(await ask(0, markers), others);
  const now = await markerOn(1);
  // The worker may have extended the index meanwhile.
  assert.ok(now.reaches >= reaches, `${now.reaches} ${reaches}`);
  assert.equal(await ask(1, `SELECT count() FROM stored_keys WHERE hash = 0 AND segment = ${stale}`), '0');
  // A higher generation makes workers load their filters again.
  assert.ok(now.generation > generation);
  assert.equal(await redis.hget(shardKeys.state(shard), 'keys_generation'), String(now.generation));
});

/** Asks the worker to rebuild the index, and holds its next statement of this kind on a server. */
async function holdRebuild(server: 0 | 1, choice: Choice): Promise<ClickHouseGate> {
  const gate = processes[server];
  gate.hold(choice);
  await administer(sluice, 'POST', '/keys-index/rebuild');
  await isHeld(gate);
  return gate;
}

/** Settles when the worker has ended its work on the index of a server that no longer has the shard. */
async function untilRefused(times: number): Promise<void> {
  const refusals = () => (sluice.workers[0]?.output() ?? '').split('exchanged or moved meanwhile').length - 1;
  await until(() => refusals() >= times, 'the worker sees that the shard was moved');
}

/** A statement for the index of the shard. Those of the other shards are made at the same time. */
const ofIndex =
  (text: string): Choice =>
  ({ sql, parameters }) =>
    sql.startsWith(text) && parameters.get('log_comment') === `index ${shard}`;
const addsKeys = ofIndex('INSERT INTO stored_keys (hash, rest, segment) ');
const keysOfShard = `stored_keys FINAL WHERE hash != 0 AND segment % 64 = ${shard}`;

test('a worker that was paused during a move writes neither a key nor a marker on the old server', async () => {
  await send('third');
  let refusals = 0;
  for (const choice of [ofIndex('INSERT INTO stored_keys (hash, rest, segment, owner)'), addsKeys]) {
    const { from, to } = await sides();
    // Without one the worker writes a first marker, which depends on no earlier one.
    if (choice !== addsKeys)
      await ask(from, `ALTER TABLE stored_keys DELETE WHERE hash = 0 AND rest = ${shard}`);
    const gate = await holdRebuild(from, choice);
    // The server still has the rows whose keys the worker adds.
    slow[from].hold(startsWith('ALTER TABLE stored_events DELETE'));
    const moving = moveThrough(slow, to);
    await isHeld(slow[from]);
    await ask(from, `ALTER TABLE stored_keys DELETE WHERE hash != 0 AND segment % 64 = ${shard}`);
    gate.release();
    refusals += 1;
    await untilRefused(refusals);
    assert.equal(await ask(from, `SELECT count() FROM ${keysOfShard}`), '0');
    slow[from].release();
    assert.deepEqual(await moving, moved(to));
    const left = `stored_keys WHERE hash = 0 AND rest = ${shard} OR hash != 0 AND segment % 64 = ${shard}`;
    assert.equal(await ask(from, `SELECT count() FROM ${left}`), '0');
    // The worker ends the rebuild on the other server.
    await sluice.admin('keys-index', 'rebuild');
  }
  await forgetKeys(redis);
  await send('third');
  assert.equal(await countOf('third'), '1');
});

test('a rebuild of the index that continues on the former server of a moved shard begins again', async () => {
  const { from, to } = await sides();
  await send('rebuilt');
  // From here on the worker has nothing else to add.
  await sluice.admin('keys-index', 'rebuild');
  const keys = `SELECT count() FROM ${keysOfShard}`;
  const all = await ask(from, keys);
  assert.notEqual(all, '0');
  await ask(from, `ALTER TABLE stored_keys DELETE WHERE hash != 0 AND segment % 64 = ${shard}`);
  // The worker is paused before it adds the keys, and its statement is lost.
  const gate = await holdRebuild(from, addsKeys);
  const { generation } = await markerOn(from);
  // Otherwise its statement is late before a slow machine has moved the shard, and it begins again by itself.
  const [worker] = sluice.workers;
  worker?.sigstop();
  assert.deepEqual(await move(to), moved(to));
  const state = shardKeys.state(shard);
  const noted = JSON.parse((await redis.hget(state, 'keys_rebuild')) ?? '') as Record<string, string>;
  assert.equal(noted.generation, String(generation));
  // Records the progress of a worker whose keys reached the old server while the shard was copied.
  await redis.hset(state, 'keys_rebuild', JSON.stringify({ ...noted, doneTo: noted.to }));
  assert.equal(await ask(to, keys), '0');
  gate.forget();
  gate.release();
  worker?.sigcont();
  await until(async () => (await redis.hexists(state, 'keys_rebuild')) === 0, 'the index is rebuilt');
  assert.equal(await ask(to, keys), all);
});

const killedAt = (point: string, to: number) =>
  killAt(sluice, point, 'shards', 'move', String(shard), '--to', String(to));

/** The name of the copies that the last process makes which has begun or continued the move. */
async function copyName(): Promise<string> {
  const document = JSON.parse((await redis.hget(registryKeys.documents, 'shard_servers:')) ?? '');
  return `store asked move ${shard} ${document.moves[0].owner}`;
}

const insert = (server: number, name: string, rows: number) =>
  ask(
    server,
    `INSERT INTO stored_events (app_id, event, segment) SETTINGS log_comment = '${name}', max_block_size = 1, min_insert_block_size_rows = 1
      SELECT '1', 'slow', ${4e15 + shard} FROM numbers(${rows}) WHERE sleepEachRow(0.5) = 0`,
  );
const slowOn = async (server: number) =>
  Number(await ask(server, "SELECT count() FROM stored_events WHERE event = 'slow'"));

/** Asserts that a command waits for an insert of this name, which is running on a server; then ends both. */
async function assertWaits(server: 0 | 1, name: string, command: () => Promise<unknown>): Promise<void> {
  const before = await slowOn(server);
  const inserting = insert(server, name, 1_000).catch(() => 'killed');
  await until(async () => (await slowOn(server)) > before, 'the server accepts its rows');
  let [looks, hasEnded] = [0, false];
  slow[server].hold(({ sql }) => {
    if (sql.includes("Settings['log_comment']")) looks += 1;
    return false;
  });
  const commanded = command().finally(() => {
    hasEnded = true;
  });
  await until(() => looks > 1 || hasEnded, 'it looks again whether the insert is running');
  assert.equal(hasEnded, false);
  await ask(server, `KILL QUERY WHERE Settings['log_comment'] = '${name}' SYNC`);
  assert.equal(await inserting, 'killed');
  await commanded;
}

test('a move to a server that is away does not begin; one that has changed nothing is reverted without it', async () => {
  const { from, to } = await sides();
  const isAway = new RegExp(`ClickHouse server ${to} \\(from 0\\) does not answer`);
  const setAway = () => slow[to].refuse(() => true, 999);
  await killedAt('move_noted', to);
  setAway();
  await assert.rejects(moveThrough(slow, to), isAway);
  assert.equal((await placeOf()).moving_to, to);
  assert.deepEqual(await moveThrough(slow, from), { server: from, moved: [] });
  await assert.rejects(moveThrough(slow, to), isAway);
  assert.deepEqual(await sides(), { from, to });
  await killedAt('shard_closed', to);
  const whatToDo = new RegExp(
    `server ${to} \\(from 0\\) does not answer. Shard 0 stores nothing .* "shards move 0 --to ${to}" continues the move, and "shards move 0 --to ${from}" reverts it`,
  );
  for (const goal of [from, to]) await assert.rejects(moveThrough(slow, goal), whatToDo);
  assert.deepEqual(await move(from), moved(from));
  await send('after the moves');
  assert.equal(await countOf('after the moves'), '1');
});

test('a move that fails before it has changed a server is forgotten', async () => {
  const { from, to } = await sides();
  const refuse = async (server: 0 | 1, choice: Choice, times: number) => {
    slow[server].refuse(choice, 999);
    await assert.rejects(moveThrough(slow, to), /Refused by the gate/);
    assert.equal(slow[server].faked.length, times);
    assert.deepEqual(await sides(), { from, to });
    slow[server].pass();
  };
  await refuse(from, ({ parameters }) => parameters.get('param_mark') === 'retention_run_', 1);
  const copiesRegistry = startsWith('INSERT INTO registry');
  // The worker must not make these copies first.
  processes[0].refuse(copiesRegistry, 999);
  // The copy that records the move is refused, or that which records its first change; then that which records its end is refused too.
  for (const taken of [0, 1]) {
    let copies = 0;
    await refuse(0, (statement) => copiesRegistry(statement) && copies++ >= taken, 2);
  }
});

test('before a move changes a server, the second copy records that the move cannot be forgotten any more', async () => {
  const { to } = await sides();
  slow[to].hold(startsWith('CREATE OR REPLACE VIEW local_events'));
  const moving = moveThrough(slow, to);
  await isHeld(slow[to]);
  const copy = await ask(
    0,
    "SELECT argMax(document, (registry.version, written_at)) FROM registry WHERE document_key = 'shard_servers:'",
  );
  assert.match(copy, /"stage":"copy".*"unchanged_by":""/);
  slow[to].release();
  assert.deepEqual(await moving, moved(to));
});

/** Stores a row like a paused worker, under a number above all that the server refuses since earlier moves. */
const storeLate = (server: number) =>
  ask(
    server,
    `INSERT INTO stored_events (app_id, segment) SETTINGS log_comment = 'store events ${4e15 + shard}'
      VALUES ('1', ${4e15 + shard})`,
  );
const doorOfShard = `SELECT argMax(door, value) FROM shard_limits WHERE shard = ${shard} AND kind = 'door'`;
const setsDoor: Choice = ({ sql }) => sql.includes(`SELECT ${shard}, 'door'`);

test('a server that a process opens late for a shard that was moved meanwhile is closed for it again', async () => {
  const { from, to } = await sides();
  slow[from].hold(setsDoor);
  const late = moveThrough(slow, from);
  await isHeld(slow[from]);
  assert.deepEqual(await move(to), moved(to));
  slow[from].release();
  assert.deepEqual(await late, { server: from, moved: [] });
  await assert.rejects(storeLate(from), /Constraint `shard_limits`/);
});

test('a server that a move opens late, when the shard has moved back, is closed for it again', async () => {
  const { from, to } = await sides();
  slow[to].hold((statement) => setsDoor(statement) && statement.sql.includes("'open'"));
  const late = moveThrough(slow, to);
  await isHeld(slow[to]);
  assert.deepEqual(await move(to), moved(to));
  assert.deepEqual(await move(from), moved(from));
  slow[to].release();
  await assert.rejects(late, /another process has continued the move/);
  await assert.rejects(storeLate(to), /Constraint `shard_limits`/);
});

test('a process that was paused while its move was taken back copies nothing, and leaves the shard open', async () => {
  const { from, to } = await sides();
  // It is about to close the shard on the server that has it, after it has checked that the move is its own.
  slow[from].hold(setsDoor);
  const late = moveThrough(slow, to);
  await isHeld(slow[from]);
  assert.deepEqual(await move(from), moved(from));
  slow[from].release();
  await assert.rejects(late, /another process has continued the move/);
  assert.equal(await ask(to, `SELECT count() FROM stored_events WHERE segment % 64 = ${shard}`), '0');
  await send('taken back');
  assert.equal(await countOf('taken back'), '1');
});

test('a move and its reverting wait for inserts that are running, and refuse what comes later', async () => {
  const { from, to } = await sides();
  await sluice.admin('keys-index', 'rebuild');
  const bySlow = { ...sluice, env: { ...sluice.env, ...through(slow) } };
  const killedBySlow = (point: string) =>
    killAt(bySlow, point, 'shards', 'move', String(shard), '--to', String(to));
  other[to].hold(startsWith('CREATE OR REPLACE VIEW local_events'));
  const late = moveThrough(other, to);
  await isHeld(other[to]);
  await assertWaits(from, `store events ${4e15 + shard}`, () => killedBySlow('shard_closed'));
  other[to].release();
  await assert.rejects(late, /another process has continued the move/);
  assert.equal(await ask(to, doorOfShard), await copyName());

  await assertWaits(to, await copyName(), () => killedBySlow('index_renewed'));
  assert.equal(await slowOn(to), await slowOn(from));

  const name = await copyName();
  await assertWaits(to, name, () => moveThrough(slow, from));
  assert.equal(await slowOn(to), 0);
  await assert.rejects(insert(to, name, 1), /Constraint `shard_limits`/);
  // The workers' filters of keys are used again.
  const { generation } = await markerOn(from);
  assert.equal(await redis.hget(shardKeys.state(shard), 'keys_generation'), String(generation));
});

test('a process that continues a move ends the removal of rows that the former one has begun', async () => {
  const { from, to } = await sides();
  await send('removed');
  const removals = () =>
    ask(
      from,
      `SELECT count() FROM system.mutations WHERE position(command, 'store asked move ${shard} ') > 0 AND NOT is_done`,
    );
  await ask(from, 'SYSTEM STOP MERGES stored_events');
  const former = moveThrough(slow, to);
  const ended = assert.rejects(former, /another process has continued the move/);
  await until(async () => (await removals()) === '1', 'the rows are to be removed');
  slow[from].hold(({ sql }) => sql.includes('FROM system.mutations'));
  other[from].hold(startsWith('ALTER TABLE stored_events DELETE'));
  const moving = moveThrough(other, to);
  await isHeld(other[from]);
  assert.equal(await removals(), '0');
  await ask(from, 'SYSTEM START MERGES stored_events');
  other[from].release();
  assert.deepEqual(await moving, moved(to));
  slow[from].release();
  await ended;
});

test('no shard is moved from a server that was set back, and a move that was under way is reverted', async () => {
  await move(0);
  await send('before it was set back');
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
  assert.deepEqual(await move(0), moved(0));
  assert.equal(await ask(1, arrived), '0');
  await assert.rejects(move(1), /server 0 was set back to older data/);
  assert.deepEqual(await sides(), { from: 0, to: 1 });
  const { recovered } = (await sluice.admin('state', 'recover')) as { recovered: readonly number[] };
  assert.deepEqual(recovered, [0]);
  assert.deepEqual(await move(1), moved(1));
});

test('a shard that came to a server after the state to which it was set back may be missing entirely', async () => {
  await send('came later');
  await send('was there', 1);
  await move(1);
  const to = await ask(1, 'SELECT max(segment) FROM stored_events WHERE segment % 64 = 1');
  const missing = await until(async () => {
    await ask(1, 'TRUNCATE TABLE witness');
    // The witness that an older copy of the server would have, which has the other shard completely.
    await ask(
      1,
      `INSERT INTO witness (part, number, stored_to, stored_records) VALUES ('registry', 1, 0, 0), ('0', 1, 64, 1), ('1', 1, ${to}, 1)`,
    );
    const state = (await sluice.admin('state', 'compare')) as {
      clickhouse: readonly { state: string }[];
      missing: readonly { shard: number; records: number | null; after: string | null }[];
    };
    return state.clickhouse[1]?.state === 'set_back' && state.missing;
  }, 'the server is known to be set back');
  const of = (which: number) => missing.find((each) => each.shard === which);
  assert.deepEqual([of(shard)?.records, of(shard)?.after], [null, null]);
  assert.equal(of(1)?.after, new Date(Number(to) / 1000).toISOString());
  assert.deepEqual(((await sluice.admin('state', 'recover')) as { recovered: unknown }).recovered, [1]);
});

test('a move waits for a restore and for a round of deletions, and takes the lock of a move that was killed', async () => {
  const { to } = await sides();
  const lock = registryKeys.maintenanceLock;
  const heldMs = 3_600_000;
  let moving: Promise<unknown> | undefined;
  for (const held of ['restore another', 'round another']) {
    await redis.set(lock, held, 'PX', heldMs);
    moving ??= move(to);
    // A process that waits for the lock shortens any time to live that no lock can have.
    await until(async () => (await redis.pttl(lock)) < heldMs / 2, 'the move waits');
    assert.equal(await redis.get(lock), held);
  }
  await redis.set(lock, 'move another', 'PX', heldMs);
  assert.deepEqual(await moving, moved(to));
});

/** How many events of Bob, who is in shard 2, each server shows. */
const seen = () =>
  Promise.all([0, 1].map((server) => ask(server, "SELECT count() FROM events WHERE identity = 'bob'")));

test('while two shards are moved at once, no query sees a row twice', async () => {
  await sendEvents(sluice, appIds[2] ?? '', 'stay', [{ identity: 'bob' }]);
  await untilStored(sluice);
  const [{ to }, ofOther] = [await sides(), await sides(2)];
  // The held process has read which shards are being moved.
  slow[ofOther.to].hold(startsWith('CREATE OR REPLACE VIEW local_events'));
  const first = moveThrough(slow, to);
  await isHeld(slow[ofOther.to]);
  // The other move is held after it has copied all rows of its shard.
  other[ofOther.from].hold(({ sql }) => sql.includes('AS rows FROM failed_events'));
  const second = moveThrough(other, ofOther.to, 2);
  await isHeld(other[ofOther.from]);
  assert.deepEqual(await seen(), ['1', '1']);
  slow[ofOther.to].release();
  slow[to].hold(setsDoor);
  await isHeld(slow[to]);
  assert.deepEqual(await seen(), ['1', '1']);
  slow[to].release();
  assert.deepEqual(await first, moved(to));
  assert.deepEqual(await seen(), ['1', '1']);
  other[ofOther.from].release();
  await second;
  assert.deepEqual(await seen(), ['1', '1']);
});

test('while servers are migrated beside a move, no query sees a row twice', async () => {
  const { from, to } = await sides(2);
  // The held process has read which shards are being moved.
  slow[to].hold(startsWith('CREATE OR REPLACE VIEW local_events'));
  const migrated = runMigrations({ ...sluice.env, ...through(slow) });
  await isHeld(slow[to]);
  // The move is held after it has copied all rows of its shard.
  other[from].hold(({ sql }) => sql.includes('AS rows FROM failed_events'));
  const moving = moveThrough(other, to, 2);
  await isHeld(other[from]);
  assert.deepEqual(await seen(), ['1', '1']);
  slow[to].release();
  await migrated;
  assert.deepEqual(await seen(), ['1', '1']);
  // The views hide these rows until the shard is stored on that server.
  other[from].release();
  await moving;
  assert.deepEqual(await seen(), ['1', '1']);
});

test('a process that stood still before it removed rows removes none of a shard that has come back', async () => {
  const { from, to } = await sides();
  await send('came back');
  const rows = `SELECT count() FROM stored_events WHERE segment % 64 = ${shard}`;
  const all = await ask(from, rows);
  slow[from].hold(startsWith('ALTER TABLE stored_events DELETE'));
  const late = moveThrough(slow, to);
  await isHeld(slow[from]);
  assert.deepEqual(await move(to), moved(to));
  assert.deepEqual(await move(from), moved(from));
  slow[from].release();
  await assert.rejects(late, /another process has continued the move/);
  assert.equal(await ask(from, rows), all);
});

test('rows that differ after they were copied are removed and copied again, and no masked row is left behind', async () => {
  const { from, to } = await sides();
  const at = (which: number) => String(4e15 + which);
  await ask(
    from,
    `INSERT INTO stored_events (app_id, identity, segment) SETTINGS log_comment = 'store events ${at(0)}'
      VALUES ('1', 'masked', ${at(shard)}), ('1', 'of another shard', ${at(5)})`,
  );
  await ask(
    from,
    "DELETE FROM stored_events WHERE identity = 'masked' SETTINGS lightweight_deletes_sync = 2",
  );
  const onDisk =
    "SELECT count() FROM stored_events WHERE identity = 'masked' SETTINGS apply_deleted_mask = 0";
  assert.equal(await ask(from, onDisk), '1');
  const rowsOn = (server: number) =>
    Promise.all(
      [`stored_events WHERE segment % 64 = ${shard}`, keysOfShard].map((rows) =>
        ask(server, `SELECT count() FROM ${rows}`),
      ),
    );
  await send('copied twice');
  const before = await rowsOn(from);
  // Twice other rows seem to have arrived.
  const asked = new Map<string, number>();
  slow[to].change(
    ({ sql, parameters }) => {
      const place = `${sql} ${parameters.get('param_partition')}`;
      asked.set(place, (asked.get(place) ?? 0) + 1);
      return sql.includes('AS row_hash') && [2, 3].includes(asked.get(place) ?? 0);
    },
    ({ body }) => Buffer.from(body.toString().replace(/"sum":"\d+"/, '"sum":"1"')),
  );
  assert.deepEqual(await moveThrough(slow, to), moved(to));
  assert.ok(slow[to].changed.length >= 4);
  assert.deepEqual(await rowsOn(to), before);
  assert.equal(await ask(from, onDisk), '0');
});

test('a look-up that stands still during a move shows what is held on the other server', async () => {
  await send('looked up');
  const { from, to } = await sides();
  processes[from].hold(startsWith('SELECT DISTINCT app_id, identity, user_id FROM'));
  const looking = administer<{ places: { app_id: string; events: number }[] }>(
    sluice,
    'POST',
    `/accounts/${account.accountId}/user`,
    { identity: 'ada' },
  );
  await isHeld(processes[from]);
  assert.deepEqual(await move(to), moved(to));
  processes[from].release();
  const { places } = await looking;
  assert.ok(places.find(({ app_id }) => app_id === appIds[shard])?.events);
});
