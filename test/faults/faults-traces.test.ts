// Redis holds what was sent only in the rows of segments, and logs never do. Identities in counts and keys are hashed, and no error repeats
// data.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { shardKeys } from '../../src/redis/keys.js';
import { assertKept, newProducer, untilDrained } from '../harness/fault-checks.js';
import { type Producer, startLoad, whileRunning } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';
import { textOf } from '../support/traces.js';

const sluice = await ownSluice({ env: { JOB_LOCK_MS: '1000', LOG_LEVEL: 'debug' } });
const redis = connectTestRedis(sluice.redisUrl);

after(() => redis.disconnect());

const segmentPrefix = '{s0}:segment:';

/** Everything that Redis holds outside of segments, as text by key. */
async function readOutsideSegments(): Promise<Map<string, string>> {
  const contents = new Map<string, string>();
  for (const key of await redis.keys('*')) {
    if (!key.startsWith(segmentPrefix)) contents.set(key, await textOf(redis, key));
  }
  return contents;
}

function assertNotIn(contents: ReadonlyMap<string, string>, mark: string): void {
  for (const [key, text] of contents) {
    assert.ok(!key.includes(mark), `the key ${key} names what was sent`);
    const at = text.indexOf(mark);
    assert.equal(at, -1, `${key} holds what was sent: ${text.slice(Math.max(0, at - 200), at + 100)}`);
  }
}

/** Sends records to the other endpoints, and bodies that every endpoint refuses. */
async function sendElsewhere({ mark, appId: app_id }: Producer): Promise<void> {
  const identity = `${mark}@example.com`;
  const properties = { [`${mark} key`]: mark };
  const bodies: readonly (readonly [string, unknown])[] = [
    ['/api/add_user_properties', { app_id, identity, properties }],
    ['/api/add_user_properties', { app_id, identity: [identity], properties }],
    ['/api/v1/identify', { app_id, user_id: '77', identity }],
    ['/api/v1/identify', { app_id, user_id: mark, identity }],
    ['/api/track', { app_id, event: mark, identity, user_id: mark, properties }],
    ['/api/track', { app_id, event: mark, identity, timestamp: mark, properties: { user_id: mark } }],
    ['/api/track', { app_id: mark, event: mark, identity, idempotency_key: mark, properties }],
    [
      '/api/track',
      {
        app_id,
        events: [
          { event: mark, identity },
          { event: mark, identity, timestamp: mark },
        ],
      },
    ],
    [`/api/${mark}`, { app_id, identity }],
  ];
  for (const [path, body] of bodies) {
    // Right after the faults Redis may still be too slow, so a request that gets a 503 is sent again.
    const { status } = await until(async () => {
      const reply = await fetch(`${sluice.baseUrl}${path}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${mark}` },
        body: JSON.stringify(body),
      });
      return reply.status !== 503 && reply;
    }, `${path} is answered`);
    assert.ok(status < 500, `${path}: ${status}`);
  }
  const broken = await fetch(`${sluice.baseUrl}/api/track`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: `{"identity":"${identity}"`,
  });
  assert.equal(broken.status, 400);
}

test('Redis holds no identity, key or property outside of waiting segments', async () => {
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, async () => {
    await load.more(200);
    for (const worker of sluice.workers) worker.sigstop();
    await load.more(100);
  });
  await sendElsewhere(producer);
  const segments = await redis.keys(`${segmentPrefix}*`);
  assert.ok(segments.length > 0, 'something waits');
  assertNotIn(await readOutsideSegments(), producer.mark);
  for (const worker of sluice.workers) worker.sigcont();
  await untilDrained(sluice, redis);
  assertNotIn(await readOutsideSegments(), producer.mark);
});

test('no log holds what was sent when rows are refused by ClickHouse', async () => {
  const producer = await newProducer(sluice);
  for (const worker of sluice.workers) worker.sigstop();
  assert.equal((await producer.send(sluice.baseUrl, [producer.nextEvent()])).outcome, 'acknowledged');
  // No request can cause such rows, but a defect of ours could.
  const [member] = await redis.zrange(shardKeys.segments(0), '0', '0');
  assert.ok(member);
  const [table, number] = member.split(':');
  const { mark, appId } = producer;
  // In place of its stamps, which the commit above adds, each row has this.
  const stamps = '9\n';
  const id = '00000000000000000000000000000001';
  const identity = `${mark}@example.com`;
  const rows = [
    `["${appId}","${id}","Secret","${mark}","${identity}","",null,{},${stamps}`,
    `["${appId}","${mark}","Secret",null,"${identity}","",null,{},${stamps}`,
    `["${appId}","${id}","Secret",null,"${identity}","","${mark}",{},${stamps}`,
    `["${appId}","${id}","Secret",null,"${identity}","",null,"${mark}",${stamps}`,
    `["${appId}","${id}","Secret",null,{"${mark}":"${identity}","",null,{},${stamps}`,
    `["${appId}","${id}","Secret",null,"${identity}","",null,{"${mark}":"${mark}"},"${mark}"\n`,
    `["${appId}","${id}","${mark}"]\n`,
    `${mark}\n`,
  ];
  await redis.append(`${segmentPrefix}${table}:${number}`, rows.join(''));
  await redis.hincrby(shardKeys.segmentRows(0), member, rows.length);
  await redis.hincrby(shardKeys.state(0), 'rows', rows.length);
  await redis.hincrby(shardKeys.state(0), 'bytes', rows.join('').length);
  for (const worker of sluice.workers) worker.sigcont();
  await untilDrained(sluice, redis);
  const failed = await sluice.rows(
    `SELECT error FROM failed_events WHERE table_name != '' AND segment = ${number}`,
  );
  assert.equal(failed.length, rows.length, 'the rows are kept for administrators');
  assertNotIn(await readOutsideSegments(), mark);
  await assertKept(sluice, producer, { acknowledgedMin: 1 });
});

test('no log holds what was sent when Redis and ClickHouse fail', async () => {
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, async () => {
    await load.more(50);
    await sluice.rows('RENAME TABLE stored_events TO stored_events_away');
    await load.more(100);
    await sluice.clickhouse.kill9();
    await load.more(50);
    await sluice.redis.kill9();
    await load.more(10, { outcomes: ['overloaded', 'unknown'] });
    await Promise.all([sluice.redis.restart(), sluice.clickhouse.restart()]);
    await sluice.rows('RENAME TABLE stored_events_away TO stored_events');
    await load.more(50);
  });
  await sendElsewhere(producer);
  await untilDrained(sluice, redis);
  assertNotIn(await readOutsideSegments(), producer.mark);
  for (const child of [...sluice.api, ...sluice.workers, sluice.redis, sluice.clickhouse]) {
    assertNotIn(new Map([[child.name, child.output()]]), producer.mark);
  }
});
