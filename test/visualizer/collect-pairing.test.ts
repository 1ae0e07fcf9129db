// What the client library's endpoint passes on to the watchers of a paired device, and what it answers the device about its pairing. The
// endpoint runs in this process, on the Redis of a real deployment.

import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { lengths } from '../../src/contract/limits.js';
import { noCrash } from '../../src/crash-point.js';
import { collectRoutes } from '../../src/http/endpoints/collect.js';
import { listen, type Server } from '../../src/http/protocol/server.js';
import type { Collected, OnCollected } from '../../src/ingest/collect.js';
import { createCommitter } from '../../src/ingest/commit.js';
import { createLimitKeys } from '../../src/ingest/limit-key.js';
import { createLog } from '../../src/log.js';
import { connectForCommits, untilReady } from '../../src/redis/client.js';
import { followEnvironments } from '../../src/registry/environments.js';
import { commitBatches } from '../../src/tuning.js';
import { collect, event, type Fields, request } from '../harness/collect.js';
import { freePort } from '../harness/free-port.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { noSuppressions } from '../support/shard.js';
import { ownSluice } from '../support/sluice.js';

let collected: Collected[];
/** What the hook does when it is called. */
let judge: OnCollected;

// Its own, since the committer below knows no suppressions.
const sluice = await ownSluice({ workers: 0 });
const log = createLog('test', 'silent');
const redis = connectTestRedis(sluice.redisUrl);
const commitRedis = connectForCommits(
  { redisUrl: sluice.redisUrl, redisCluster: false },
  commitBatches.attemptMs,
  log,
);
await untilReady(commitRedis, 30_000);
const environments = await followEnvironments(redis, log);
const deployment = environments.deployment();
assert.ok(deployment);
const committer = createCommitter({
  redis: commitRedis,
  shard: 0,
  suppressions: noSuppressions,
  epoch: deployment.epoch,
  backlogBytesMax: 1e9,
  segmentBytesMax: 1e6,
  segmentAgeMsMax: 1e6,
  crash: noCrash,
  log,
});
const options = {
  environments,
  ingestion: () => ({
    limitKeys: createLimitKeys(deployment.secret),
    suppressions: noSuppressions,
    committerOf: () => committer,
  }),
  counts: { addMendings: () => undefined, add: () => undefined, addRejected: () => undefined },
  rejected: { noteRequest: () => undefined, noteElements: () => undefined },
  paths: ['/api/collect'] as const,
  addressBytesMax: 1024 ** 3,
};
const onCollected: OnCollected = (what) => {
  collected.push(what);
  return judge(what);
};
/** One endpoint with the hook, one without. */
const servers: Server[] = [];
const urls: string[] = [];
for (const routes of [collectRoutes({ ...options, onCollected }), collectRoutes(options)]) {
  const port = await freePort();
  servers.push(await listen('127.0.0.1', port, 'PORT', false, routes, log));
  urls.push(`http://127.0.0.1:${port}`);
}
after(async () => {
  for (const server of servers) await server.close();
  await committer.close();
  environments.close();
  redis.disconnect();
});
beforeEach(() => {
  collected = [];
  judge = () => true;
});

const send = (messages: readonly unknown[], fields: Fields = {}, url = urls[0] ?? '') =>
  collect(url, request(sluice.appId, messages, fields));

test('calls the hook once with what was sent and answered in a request with a pairing', async () => {
  const good = event({ properties: { plan: 'pro' } });
  const messages = [good, { type: 'event', id: 'bad' }, good, 7];
  const { json } = await send(messages, { pairing: 'secret' });
  assert.equal(collected.length, 1);
  const [{ answers, ...shared } = assert.fail()] = collected;
  assert.deepEqual(shared, { appId: sluice.appId, pairing: 'secret', messages });
  assert.deepEqual(answers, json.messages);
  assert.deepEqual(
    answers.map(({ status }) => status),
    ['stored', 'rejected', 'repeat', 'rejected'],
  );
  assert.deepEqual(Object.keys(json), ['messages']);
});

test('calls no hook for a request without a pairing, or one that is refused as a whole', async () => {
  for (const pairing of [undefined, null, 7, ['secret']]) {
    const { json } = await send([event()], { pairing });
    assert.deepEqual(Object.keys(json), ['messages']);
  }
  assert.equal((await send([], { pairing: 'secret' })).status, 400);
  assert.deepEqual(collected, []);
});

const ends: readonly [name: string, pairing: string, judge: OnCollected, lives: boolean][] = [
  ['lives, at once', 'secret', () => true, true],
  ['lives, later', 'secret', () => Promise.resolve(true), true],
  ['has ended, at once', 'secret', () => false, false],
  ['has ended, later', 'secret', () => Promise.resolve(false), false],
  ['is looked for in vain, later', 'secret', () => Promise.reject(new Error('away')), true],
  [
    'is looked for in vain, at once',
    'secret',
    () => {
      throw new Error('away');
    },
    true,
  ],
  ['is the longest', 'p'.repeat(lengths.pairingMax), () => true, true],
  ['is too long', 'p'.repeat(lengths.pairingMax + 1), () => true, false],
  ['is empty', '', () => false, false],
];
for (const [name, pairing, whether, lives] of ends) {
  test(`tells a device whose pairing ${name} that it ${lives ? 'continues' : 'has ended'}`, async () => {
    judge = whether;
    const { status, json } = await send([event()], { pairing });
    assert.equal(status, 200);
    assert.equal(json.messages?.[0]?.status, 'stored');
    assert.equal(json.pairing, lives ? undefined : 'ended');
    assert.equal(collected.length, pairing.length > lengths.pairingMax ? 0 : 1);
  });
}

test('tells a device that its pairing has ended if there is no visualizer', async () => {
  const { json } = await send([event()], { pairing: 'secret' }, urls[1]);
  assert.deepEqual(Object.keys(json), ['messages', 'pairing']);
  assert.equal(json.pairing, 'ended');
});

// The last test, since the connection stays closed.
test('calls no hook for a request that is answered 503', async () => {
  commitRedis.disconnect();
  const reply = await send([event()], { pairing: 'secret' });
  assert.equal(reply.status, 503);
  assert.deepEqual(collected, []);
});
