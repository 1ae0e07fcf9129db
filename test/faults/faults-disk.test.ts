// What may happen to the disks of Redis and ClickHouse: one is full, or a power cut loses what was not synced to it.

import assert from 'node:assert/strict';
import { after, afterEach } from 'node:test';
import { AnswerCutOff, readBytes, readRow, readRows, streamRows } from '../../src/clickhouse/answers.js';
import { type ClickHouseClient, connectClickHouse, isConnectionFault } from '../../src/clickhouse/client.js';
import { ClickHouseError } from '../../src/packages/clickhouse.js';
import { shardKeys } from '../../src/redis/keys.js';
import { type Deployment, type DeploymentOptions, startDeployment } from '../chaos/deployment.js';
import { watchForPowerCut } from '../chaos/power-cut.js';
import { createSmallDisk } from '../chaos/small-disk.js';
import { findTools, type Tool } from '../chaos/tools.js';
import { findViolations, type StoredEvent, storedEventsQuery } from '../harness/exactly-once.js';
import { assertKept, newProducer, untilDrained } from '../harness/fault-checks.js';
import { type Load, type Producer, startLoad, whileRunning } from '../harness/load.js';
import { type ClickHouseHandle, keepRunning, startClickHouse } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { isUsualTier } from '../runner/lanes.js';
import { test } from '../support/test.js';

const tools = await findTools();
let deployment: Deployment | undefined;
let itsOptions = '';
let letEnd: () => void = () => undefined;

afterEach(() => letEnd());
after(() => deployment?.stop());

/** Settles with a healthy deployment: the running one if it has these options. */
async function deploymentWith(options: DeploymentOptions): Promise<Deployment> {
  const running = deployment;
  deployment = undefined;
  const its = JSON.stringify(options);
  if (running !== undefined && its === itsOptions) {
    await running.heal();
    deployment = running;
    return running;
  }
  await running?.stop();
  deployment = await startDeployment(options);
  itsOptions = its;
  return deployment;
}

async function underLoad(
  options: DeploymentOptions,
  fault: (deployment: Deployment, load: Load) => Promise<void>,
): Promise<Producer> {
  const running = await deploymentWith(options);
  const { sluice, redis } = running;
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: sluice.api.map(({ baseUrl }) => baseUrl) });
  await whileRunning(load, async () => {
    await load.more(50);
    await fault(running, load);
    await load.more(50);
  });
  await untilDrained(sluice, redis);
  producer.close();
  return producer;
}

/** A power cut, which may have taken records only if they were acknowledged between these two times. */
type Cut = { readonly lostBytes: number; readonly fromMs: number; readonly toMs: number };

/** Cuts the power at a moment when there are unsynced bytes, while every sync takes long. */
async function cutPower({ server }: Deployment, load: Load, awayMs: number): Promise<Cut> {
  const watched = await watchForPowerCut(server.pid, 100);
  await load.more(50);
  await until(() => watched.unsyncedBytes() > 0, { what: 'something is written and not synced', everyMs: 5 });
  const { lostBytes, syncedMs } = await watched.cut(() => server.kill9());
  // The trace gives the time of day, which may differ by some milliseconds from this process's clock.
  const fromMs = syncedMs - (Date.now() - performance.now()) - 50;
  // The machine needs some time to come back.
  await new Promise((settle) => setTimeout(settle, awayMs));
  // An answer from before the cut may reach a client only now.
  const toMs = performance.now();
  await server.restart();
  return { lostBytes, fromMs, toMs };
}

/** A second fault meets what recovered from the first. */
const timesEach = isUsualTier ? 1 : 2;
/** How many power cuts there may be until one finds something that was not synced. */
const cutsMax = 10;

const needs = (tool: Tool) => ({ skip: tools.has(tool) ? false : `there is no ${tool} here` });

test(
  'keeps every acknowledged event through power cuts with appendfsync always',
  needs('strace'),
  async () => {
    let lostBytes = 0;
    const producer = await underLoad({ appendfsync: 'always' }, async (running, load) => {
      // On a crowded machine what was just written may be synced before Redis is killed.
      for (let cuts = 0; cuts < timesEach || (lostBytes === 0 && cuts < cutsMax); cuts += 1)
        lostBytes += (await cutPower(running, load, 0)).lostBytes;
    });
    assert.ok(lostBytes > 0, 'no power cut found anything that was not synced');
    await assertKept((deployment as Deployment).sluice, producer);
  },
);

test(
  'stores every acknowledged event once when the disk of Redis is full for a while',
  needs('mount'),
  async () => {
    const producer = await underLoad({ appendfsync: 'always' }, async ({ disk, server }, load) => {
      for (let times = 0; times < timesEach; times += 1) {
        disk.fill();
        await until(() => !server.running, 'Redis ends, as it cannot write');
        await load.more(12, { outcomes: ['overloaded', 'unknown'] });
        disk.free();
        await server.restart();
        await load.more(50);
      }
    });
    await assertKept((deployment as Deployment).sluice, producer);
  },
);

test('loses only what was not synced in a power cut with appendfsync everysec', needs('strace'), async () => {
  const cuts: Cut[] = [];
  const producer = await underLoad({ appendfsync: 'everysec' }, async (running, load) => {
    while (cuts.length < 3) {
      cuts.push(await cutPower(running, load, 1_500));
      await load.more(50);
    }
  });
  assert.ok(
    cuts.some(({ lostBytes }) => lostBytes > 0),
    'no power cut found anything that was not synced',
  );
  const { sluice } = deployment as Deployment;
  const rows = await sluice.rows<StoredEvent>(storedEventsQuery(producer.appId));
  // Only records that were acknowledged after the last sync before a cut may be gone, together with their keys.
  const emptiedMs = cuts.map(({ fromMs, toMs }) => [fromMs, toMs] as const);
  const history = producer.readHistory();
  const losses = emptiedMs.map(([fromMs, toMs]) => {
    const gone = history.filter(({ settledMs = 0 }) => settledMs > fromMs && settledMs < toMs);
    const markers = gone.flatMap(({ events }) => events.map(({ properties }) => properties.marker));
    return { fromMs, toMs, markers: new Set(markers) };
  });
  assert.deepEqual(findViolations(history, rows, { emptiedMs, losses }).slice(0, 5), []);
});

test(
  'stores every acknowledged event once when the disk of ClickHouse is full for a while',
  needs('mount'),
  async () => {
    const full = { fileSystem: 'tmpfs', holds: 'clickhouse' } as const;
    const producer = await underLoad({ full }, async ({ disk, clickhouse, redis }, load) => {
      // A write without reserved room ends ClickHouse, perhaps only once there is room again.
      letEnd = keepRunning(clickhouse);
      for (let times = 0; times < timesEach; times += 1) {
        disk.fill();
        await until(async () => (await redis.zcard(shardKeys.segments(0))) > 3, 'segments wait');
        await load.more(50);
        disk.free();
        await load.more(50);
      }
    });
    await assertKept((deployment as Deployment).sluice, producer);
  },
);

test(
  'ClickHouse has the records that Redis had already forgotten when the power was cut',
  needs('loop'),
  async () => {
    const producer = await underLoad({ cutsPower: true }, async ({ clickhouse, cutDisk, sluice }, load) => {
      for (let cuts = 0; cuts < timesEach; cuts += 1) {
        await until(
          async () => (await sluice.rows('SELECT 1 FROM events LIMIT 1')).length > 0,
          'something is stored',
        );
        await load.more(50);
        // From here on ClickHouse answers nothing.
        clickhouse.sigstop();
        await cutDisk?.cut(() => clickhouse.kill9());
        await clickhouse.restart();
        await load.more(50);
      }
    });
    await assertKept((deployment as Deployment).sluice, producer);
  },
);

test('while its disk is full ClickHouse answers completely or with an error', needs('mount'), async () => {
  const disk = createSmallDisk();
  let server: ClickHouseHandle | undefined;
  let client: ClickHouseClient | undefined;
  try {
    server = await startClickHouse({ dir: disk.dir });
    client = connectClickHouse({ url: server.testerUrl, database: 'default' });
    await client.command({ query: 'CREATE TABLE stored (number UInt64) ENGINE = MergeTree ORDER BY number' });
    await client.command({ query: 'INSERT INTO stored SELECT number FROM numbers(100000)' });
    const query = 'SELECT number FROM stored ORDER BY number';
    const before = await readRows(client, { query });
    assert.equal(before.length, 100_000);
    disk.fill();
    assert.deepEqual(await readRow(client, { query: 'SELECT toUInt32(count()) AS rows FROM stored' }), {
      rows: 100_000,
    });
    assert.deepEqual(await readRows(client, { query }), before);
    const streamed: unknown[] = [];
    for await (const row of streamRows(client, { query })) streamed.push(row);
    assert.deepEqual(streamed, before);
    const bytes = await readBytes(client, {
      query: `SELECT reinterpret(number, 'FixedString(8)') FROM (${query})`,
    });
    assert.equal(bytes.length, 8 * before.length);
    // Shows the reason for the setting: an answer that waits in a file of the engine fails on a full disk, and the embedded engine ends.
    const inFile = { query, clickhouse_settings: { wait_end_of_query: 1 } } as const;
    const fault = await readRows(client, inFile).then(
      () => undefined,
      (error: unknown) => error,
    );
    const isEnded = isConnectionFault(fault);
    assert.ok(isEnded || fault instanceof AnswerCutOff || fault instanceof ClickHouseError, String(fault));
    disk.free();
    if (isEnded) {
      const ended = server;
      await until(async () => !ended.running, 'ClickHouse has ended');
      await ended.restart();
    }
    assert.deepEqual(await readRows(client, inFile), before);
  } finally {
    await client?.close();
    await server?.kill9();
    disk.remove();
  }
});
