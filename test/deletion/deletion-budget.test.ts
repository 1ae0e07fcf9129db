// In small tables rounds erase rows themselves, but a steady stream of requests costs no more than its share: what is above it is hidden
// first and then erased together.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { registryKeys } from '../../src/redis/keys.js';
import { erasures } from '../../src/tuning.js';
import { readStatus, sendEvents, submitAccepted, untilComplete, untilStored } from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import { deletionWorld } from '../support/deletion-world.js';

const cpuShare = 0.01;
const { sluice, token, main, elsewhere } = await deletionWorld({
  env: { ERASE_AT_ONCE_BYTES_MAX: String(1024 ** 3), ERASE_CPU_SHARE: String(cpuShare) },
});
const advanceMs = erasures.advanceCpuMs / cpuShare;

const setRest = (ms: number) =>
  withRedis(sluice, (redis) => redis.set(registryKeys.erasureRest, '1', 'PX', ms));
const restMs = () => withRedis(sluice, (redis) => redis.pttl(registryKeys.erasureRest));

async function store(identity: string): Promise<void> {
  await sendEvents(sluice, main, 'go', [{ identity }]);
  await untilStored(sluice);
}

async function stateOf(requestId: string): Promise<string | undefined> {
  return (JSON.parse((await readStatus(sluice, token, requestId)).text) as { state?: string }).state;
}

async function rowsOnDisk(identity: string): Promise<number> {
  return (
    await sluice.rows(
      `SELECT 1 FROM stored_events WHERE identity = '${identity}' SETTINGS apply_deleted_mask = 0`,
    )
  ).length;
}

async function mutations(command: string): Promise<number> {
  return (
    await sluice.rows(
      `SELECT 1 FROM system.mutations WHERE table = 'stored_events' AND position(command, '${command}') > 0`,
    )
  ).length;
}

test('while erasing has used little, a round erases rows itself, and what that costs is counted', async () => {
  await sluice.rows(
    `INSERT INTO stored_events (app_id, identity, event, session_id, segment, received_at)
      SELECT if(number = 0, '${main}', '${elsewhere}'), if(number = 0, 'at once', toString(number)), 'old', hex(randomString(100)),
        toUInt64(toUnixTimestamp64Micro(now64(6) - INTERVAL 1 YEAR)), now64(3) - INTERVAL 1 YEAR
      FROM numbers(300000) SETTINGS log_comment = 'store asked by a test'`,
  );
  const [part] = await sluice.rows<{ bytes: string }>(
    `SELECT toString(max(bytes_on_disk)) AS bytes FROM system.parts
      WHERE active AND database = currentDatabase() AND table = 'stored_events'`,
  );
  const costsMs = Number(part?.bytes) / erasures.bytesPerMs / cpuShare;
  const setAt = performance.now();
  await setRest(advanceMs);
  await untilComplete(sluice, token, await submitAccepted(sluice, token, [{ identity: 'at once' }]));
  assert.deepEqual([await rowsOnDisk('at once'), await mutations('APPLY DELETED MASK')], [0, 0]);
  const chargedMs = (await restMs()) + (performance.now() - setAt) - advanceMs;
  assert.ok(chargedMs > costsMs / 2, `${chargedMs} ms instead of ${costsMs}`);
});

test('once erasing has used its share and more, users of small tables are hidden, and then erased together', async () => {
  await store('first');
  await store('second');
  await setRest(advanceMs + 3_600_000);
  const requestIds: string[] = [];
  for (const identity of ['first', 'second']) {
    const requestId = await submitAccepted(sluice, token, [{ identity }]);
    requestIds.push(requestId);
    await until(async () => (await stateOf(requestId)) === 'hidden', 'the user is hidden');
  }
  assert.deepEqual([await rowsOnDisk('first'), await rowsOnDisk('second')], [1, 1]);
  assert.equal(await mutations('APPLY DELETED MASK'), 0);
  await setRest(advanceMs);
  for (const requestId of requestIds) await untilComplete(sluice, token, requestId);
  assert.deepEqual([await rowsOnDisk('first'), await rowsOnDisk('second')], [0, 0]);
  assert.equal(await mutations('APPLY DELETED MASK'), 1);
});
