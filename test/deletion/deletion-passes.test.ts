// The passes that erase hidden users' rows hold up nobody who is to be hidden, and a request that asks to be erased at once does not wait
// for the next pass.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { registryKeys } from '../../src/redis/keys.js';
import { erasures } from '../../src/tuning.js';
import { createTestAccount } from '../harness/accounts.js';
import {
  getToken,
  hurryRounds,
  readStatus,
  sendEvents,
  showDeletion,
  submitAccepted,
  submitWith,
  untilComplete,
  untilStored,
} from '../harness/deletion.js';
import { maskingEnvironment } from '../harness/environment.js';
import { withRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import { gatedDeletionWorld } from '../support/deletion-world.js';

const world = await gatedDeletionWorld({ env: { JOB_LOCK_MS: '1000', ...maskingEnvironment } });
const { sluice, gate, worker, account, token, strangerToken, main, elsewhere } = world;

async function letPassesRest(): Promise<void> {
  await withRedis(sluice, (redis) => redis.set(registryKeys.erasureRest, '1', 'PX', 3_600_000));
}

/** ClickHouse's code for lack of memory. */
const outOfMemory = 241;
/** The deadline where a test waits for a part that ClickHouse rewrites, since that may notice late that its pass was ended. */
const busyMsMax = 300_000;

/** No pass begins before a test lets it, it gives way as if it were the first, and one may be asked for at once. */
beforeEach(async () => {
  await letPassesRest();
  const before = [registryKeys.erasureGaveWay, registryKeys.erasureAsked(account.accountId)];
  await withRedis(sluice, (redis) => redis.del(...before));
});
afterEach(() => gate.pass());

async function letPassBegin(): Promise<void> {
  await withRedis(sluice, (redis) => redis.del(registryKeys.erasureRest, registryKeys.deletionRound));
}

/** 1 while a round has its turn. */
function turnsTaken(): Promise<number> {
  return withRedis(sluice, (redis) => redis.exists(registryKeys.deletionRound));
}

/** Lets the erased rows be counted, as after a pass, and holds that. Settles with how often statements of rounds were ended since. */
async function holdCount(pass: '1' | 'late'): Promise<() => number> {
  let ended = 0;
  gate.hold(({ sql, parameters }) => {
    if (sql.startsWith('KILL QUERY') && parameters.get('param_names')?.includes('deletion_round_'))
      ended += 1;
    return sql.includes('_row_exists') && sql.includes('failed_events');
  });
  await until(async () => (await turnsTaken()) === 0, 'the round is over');
  await withRedis(sluice, (redis) => redis.set(registryKeys.erasurePass, pass));
  await until(() => gate.held.length > 0, { deadlineMs: busyMsMax, what: 'the erased rows are counted' });
  return () => ended;
}

async function stateOf(requestId: string, tokenOfOwner = token): Promise<string | undefined> {
  return (JSON.parse((await readStatus(sluice, tokenOfOwner, requestId)).text) as { state?: string }).state;
}

async function untilHidden(requestId: string, tokenOfOwner = token): Promise<void> {
  await hurryRounds(sluice);
  await until(async () => (await stateOf(requestId, tokenOfOwner)) === 'hidden', {
    deadlineMs: busyMsMax,
    what: 'the request is hidden',
  });
}

async function hide(identity: string): Promise<string> {
  const requestId = await submitAccepted(sluice, token, [{ identity }]);
  await untilHidden(requestId);
  return requestId;
}

async function maskedRows(identity: string): Promise<number> {
  const [row] = await sluice.rows<{ masked: string }>(
    `SELECT toString(countIf(_row_exists = 0)) AS masked FROM stored_events
      WHERE identity = '${identity}' SETTINGS apply_deleted_mask = 0`,
  );
  return Number(row?.masked);
}

const lastYear = 'toUInt64(toUnixTimestamp64Micro(now64(6) - INTERVAL 1 YEAR))';

/** Stores events of a year ago in their own part: one of a user, and those of others. */
async function storeOld(identity: string, others: number): Promise<void> {
  await sluice.rows(
    `INSERT INTO stored_events (app_id, identity, event, session_id, segment, received_at)
      SELECT if(number = 0, '${main}', '${elsewhere}'), if(number = 0, '${identity}', concat('other ', toString(number))),
        'old', hex(randomString(100)), ${lastYear}, now64(3) - INTERVAL 1 YEAR
      FROM numbers(${others + 1})
      SETTINGS log_comment = 'store asked by a test'`,
  );
}

async function runningPasses(): Promise<number> {
  return (
    await sluice.rows(
      "SELECT 1 FROM system.mutations WHERE NOT is_done AND position(command, 'APPLY DELETED MASK') > 0",
    )
  ).length;
}

/**
 * Hides a user and lets a pass begin that takes a quarter of a minute to erase the row, on a busy machine minutes. Small blocks let the
 * pass notice soon that it was ended, since it looks between two of them.
 */
async function beginSlowPass(identity: string, erase?: 'now'): Promise<string> {
  await sluice.rows(
    'ALTER TABLE stored_events MODIFY SETTING merge_max_block_size = 256, max_compress_block_size = 16384',
  );
  await storeOld(identity, 300_000);
  await sluice.rows('ALTER TABLE stored_events MODIFY COLUMN session_id CODEC(ZSTD(22))');
  const reply = await submitWith(sluice, token, { users: [{ identity }], erase });
  const { deletion_request_id: requestId } = JSON.parse(reply.text) as { deletion_request_id: string };
  await untilHidden(requestId);
  if (erase === undefined) await letPassBegin();
  await untilPassRuns();
  return requestId;
}

async function untilPassRuns(): Promise<void> {
  await until(async () => (await runningPasses()) > 0, { deadlineMs: busyMsMax, what: 'a pass runs' });
}

test('users are hidden while a long pass runs, which gives way and begins again', async () => {
  const slow = await beginSlowPass('slow');
  await sendEvents(sluice, main, 'go', [{ identity: 'meanwhile' }]);
  await untilStored(sluice);
  const meanwhile = await hide('meanwhile');
  assert.equal(await maskedRows('slow'), 1, 'the pass has not ended');
  assert.match(worker.output(), /a pass was interrupted/);
  assert.equal(await stateOf(slow), 'hidden');

  await sluice.rows('ALTER TABLE stored_events MODIFY COLUMN session_id CODEC(LZ4)');
  await letPassBegin();
  await untilComplete(sluice, token, slow, busyMsMax);
  await untilComplete(sluice, token, meanwhile, busyMsMax);
  assert.deepEqual([await maskedRows('slow'), await maskedRows('meanwhile')], [0, 0]);
});

test('a pass that was asked for at once gives way to users of others, but not again before it had time for its largest part', async () => {
  const untilPassEnded = async (identity: string) => {
    await until(async () => (await runningPasses()) === 0, {
      deadlineMs: busyMsMax,
      what: 'the pass is ended',
    });
    assert.notEqual(await maskedRows(identity), 0, 'the pass has not erased its part');
    // On a busy machine ClickHouse does so later than a worker waits for it.
    await sluice.rows('SYSTEM STOP MERGES stored_events');
    const rewritten = () => sluice.rows('SELECT 1 FROM system.merges WHERE is_mutation');
    await until(async () => (await rewritten()).length === 0, {
      deadlineMs: busyMsMax,
      what: 'the part is no longer rewritten',
    });
    await sluice.rows('SYSTEM START MERGES stored_events');
  };
  const slow = await beginSlowPass('slow at once', 'now');
  gate.hold(({ sql }) => sql.startsWith('ALTER') && sql.includes('APPLY DELETED MASK'));
  const first = await submitAccepted(sluice, strangerToken, [{ identity: 'other 7' }]);
  await hurryRounds(sluice);
  await untilPassEnded('slow at once');
  await untilHidden(first, strangerToken);

  // The pass begins again by itself.
  gate.release();
  await untilPassRuns();
  await withRedis(sluice, (redis) =>
    redis.set(registryKeys.erasureGaveWay, '1', 'PX', erasures.givesWayEveryMs),
  );
  const second = await submitAccepted(sluice, strangerToken, [{ identity: 'other 8' }]);
  const stateOfSecond = () => stateOf(second, strangerToken);
  await hurryRounds(sluice);
  await until(async () => (await stateOfSecond()) === 'deleting', 'a round waits for the pass');
  await pause(1_000);
  assert.deepEqual([await stateOfSecond(), await runningPasses()], ['deleting', 1]);
  await withRedis(sluice, (redis) => redis.del(registryKeys.erasureGaveWay));
  await untilPassEnded('other 7');

  await sluice.rows('ALTER TABLE stored_events MODIFY COLUMN session_id CODEC(LZ4)');
  await untilComplete(sluice, token, slow, busyMsMax);
  await letPassBegin();
  for (const requestId of [first, second]) await untilComplete(sluice, strangerToken, requestId, busyMsMax);
});

test('a small pass is not interrupted, so that requests cannot put it off for ever', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'patient' }]);
  await untilStored(sluice);
  const slow = await beginSlowPass('slow but small');
  await letPassesRest();
  worker.sigstop();
  const sparing = await sluice.addWorker({ ERASE_AT_ONCE_BYTES_MAX: '1073741824' });
  const patient = await hide('patient');
  assert.doesNotMatch(sparing.output(), /a pass was interrupted/);
  await sparing.stop();
  worker.sigcont();
  await sluice.rows('ALTER TABLE stored_events MODIFY COLUMN session_id CODEC(LZ4)');
  await letPassBegin();
  for (const requestId of [slow, patient]) await untilComplete(sluice, token, requestId, busyMsMax);
});

test('merges continue when the worker is killed while a pass gives way', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'during' }]);
  await untilStored(sluice);
  const killed = await sluice.addWorker({ CRASH_AT: 'merges_stopped:1' });
  worker.sigstop();
  const slow = await beginSlowPass('slow too');
  const during = await submitAccepted(sluice, token, [{ identity: 'during' }]);
  await hurryRounds(sluice);
  await until(() => !killed.running, { deadlineMs: busyMsMax, what: 'the worker is killed' });
  await sluice.rows('ALTER TABLE stored_events MODIFY COLUMN session_id CODEC(LZ4)');
  worker.sigcont();
  await letPassBegin();
  for (const requestId of [during, slow]) await untilComplete(sluice, token, requestId, busyMsMax);
});

test('a user is hidden without waiting for merges of months without rows of theirs', async () => {
  await sluice.rows(
    'ALTER TABLE stored_events MODIFY SETTING merge_max_block_size = 256, max_compress_block_size = 16384',
  );
  for (const name of ['merged', 'merged too']) await storeOld(name, 300_000);
  await sendEvents(sluice, main, 'go', [{ identity: 'this month' }]);
  await untilStored(sluice);
  await sluice.rows('ALTER TABLE stored_events MODIFY COLUMN session_id CODEC(ZSTD(22))');
  const [old] = await sluice.rows<{ id: string }>(
    "SELECT any(_partition_id) AS id FROM stored_events WHERE identity = 'merged'",
  );
  const merging = sluice
    .rows(`OPTIMIZE TABLE stored_events PARTITION ID '${old?.id}' FINAL`)
    .catch(() => undefined);
  const merges = async () =>
    (await sluice.rows(`SELECT 1 FROM system.merges WHERE partition_id = '${old?.id}' AND NOT is_mutation`))
      .length;
  await until(async () => (await merges()) > 0, { deadlineMs: busyMsMax, what: 'parts are merged' });
  await hide('this month');
  assert.deepEqual([await merges(), await maskedRows('this month')], [1, 1]);
  const undone = await sluice.rows(
    "SELECT 1 FROM system.mutations WHERE NOT is_done AND position(command, 'deletion_round_') > 0",
  );
  assert.deepEqual(undone, []);
  await sluice.rows('SYSTEM STOP MERGES stored_events');
  await merging;
  await sluice.rows('ALTER TABLE stored_events MODIFY COLUMN session_id CODEC(LZ4)');
  await sluice.rows('SYSTEM START MERGES stored_events');
});

test('a round that only erases takes no turn, and its count ends at once when another user is to be hidden', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'erased' }, { identity: 'waits for a count' }]);
  await untilStored(sluice);
  const erased = await hide('erased');
  const ended = await holdCount('1');
  assert.deepEqual([await turnsTaken(), ended()], [0, 0]);
  const waits = await submitAccepted(sluice, token, [{ identity: 'waits for a count' }]);
  await until(() => ended() > 0, { deadlineMs: busyMsMax, what: 'the count is ended' });
  gate.forget();
  gate.pass();
  await until(async () => (await stateOf(waits)) === 'hidden', {
    deadlineMs: busyMsMax,
    what: 'the user is hidden',
  });
  assert.equal(await stateOf(erased), 'hidden');
  await letPassBegin();
  for (const requestId of [erased, waits]) await untilComplete(sluice, token, requestId, busyMsMax);
});

test('a count that made way for a user who was to be hidden does not make way again', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'counted' }, { identity: 'waits for all of it' }]);
  await untilStored(sluice);
  const counted = await hide('counted');
  const ended = await holdCount('late');
  const waits = await submitAccepted(sluice, token, [{ identity: 'waits for all of it' }]);
  // A count that may make way looks twice a second whether it must.
  await pause(2_000);
  assert.equal(ended(), 0);
  gate.pass();
  await until(async () => (await stateOf(waits)) === 'hidden', {
    deadlineMs: busyMsMax,
    what: 'the user is hidden',
  });
  await letPassBegin();
  for (const requestId of [counted, waits]) await untilComplete(sluice, token, requestId, busyMsMax);
});

test('a pass completes the requests whose rows it has erased, but none that was hidden after it began', async () => {
  await storeOld('early', 1);
  const early = await hide('early');
  await sendEvents(sluice, main, 'go', [{ identity: 'late' }]);
  await untilStored(sluice);
  const late = await hide('late');
  // A pass that began before the second user was hidden would have erased only this.
  await sluice.rows(
    `ALTER TABLE stored_events APPLY DELETED MASK IN PARTITION tuple(toYYYYMM(now() - INTERVAL 1 YEAR)) SETTINGS mutations_sync = 2`,
  );
  await withRedis(sluice, (redis) => redis.set(registryKeys.erasurePass, '1'));
  await untilComplete(sluice, token, early, busyMsMax);
  assert.deepEqual([await stateOf(late), await maskedRows('late')], ['hidden', 1]);
  await letPassBegin();
  await untilComplete(sluice, token, late, busyMsMax);
});

test('failing passes do not delay a request that asks to be erased at once', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'urgent' }]);
  await untilStored(sluice);
  const outOfSpace = 243;
  gate.refuse(({ sql }) => sql.includes('APPLY DELETED MASK') && sql.startsWith('ALTER'), outOfSpace);
  const body = { users: [{ identity: 'urgent' }], erase: 'now', reference: 'urgent' };
  const reply = await submitWith(sluice, token, body);
  const { deletion_request_id: requestId } = JSON.parse(reply.text) as { deletion_request_id: string };
  await until(() => gate.faked.length >= 2, { deadlineMs: busyMsMax, what: 'passes fail' });
  assert.equal(await stateOf(requestId), 'hidden');
  gate.pass();
  await untilComplete(sluice, token, requestId, busyMsMax);
  assert.equal(await maskedRows('urgent'), 0);
  assert.equal((await submitWith(sluice, token, body)).status, 200, 'the same request again');
});

test('rows are erased although rounds fail again and again', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'in time' }, { identity: 'refused' }]);
  await untilStored(sluice);
  const inTime = await hide('in time');
  gate.refuse(({ sql }) => sql.startsWith('ALTER TABLE stored_events UPDATE _row_exists'), outOfMemory);
  const refused = await submitAccepted(sluice, token, [{ identity: 'refused' }]);
  await letPassBegin();
  await untilComplete(sluice, token, inTime, busyMsMax);
  assert.notEqual(await stateOf(refused), undefined);
  gate.pass();
  await untilComplete(sluice, token, refused, busyMsMax);
});

test('accounts whose rows ClickHouse refuses to count keep no request of others from being complete', async () => {
  const requests: { readonly appId: string; readonly ownToken: string; readonly id: string }[] = [];
  for (const name of ['Not counted', 'Beside it', 'Beside it too', 'Not counted either']) {
    const other = await createTestAccount(sluice, name, ['Main Production']);
    const [appId = ''] = other.appIds;
    await sendEvents(sluice, appId, 'go', [{ identity: 'counted' }]);
    await untilStored(sluice);
    const ownToken = await getToken(sluice, other);
    requests.push({ appId, ownToken, id: await submitAccepted(sluice, ownToken, [{ identity: 'counted' }]) });
  }
  const states = () => Promise.all(requests.map(async ({ id }) => (await showDeletion(sluice, id)).state));
  await hurryRounds(sluice);
  await until(async () => (await states()).every((state) => state === 'hidden'), 'all are hidden');
  const refused = [requests[0]?.appId, requests[3]?.appId].map((appId) => `"app_id":"${appId}"`);
  gate.refuse(
    ({ sql, body }) => sql.includes('deletion_round_') && refused.some((one) => body.includes(one)),
    outOfMemory,
  );
  await letPassBegin();
  for (const { ownToken, id } of requests.slice(1, 3)) await untilComplete(sluice, ownToken, id, busyMsMax);
  const [first, , , last] = await states();
  assert.deepEqual([first, last], ['hidden', 'hidden']);
  gate.pass();
  await letPassBegin();
  for (const { ownToken, id } of requests) await untilComplete(sluice, ownToken, id, busyMsMax);
});

test('a user is hidden between the completions of many requests', async () => {
  const lists = Array.from({ length: 6 }, (_, list) => `list ${list}`);
  await sendEvents(
    sluice,
    main,
    'go',
    [...lists, 'waits'].map((identity) => ({ identity })),
  );
  await untilStored(sluice);
  const requestIds: string[] = [];
  for (const name of lists) {
    // A round takes five of these lists.
    const others = Array.from({ length: 9_999 }, (_, user) => ({ identity: `${name} ${user}` }));
    requestIds.push(await submitAccepted(sluice, token, [{ identity: name }, ...others]));
  }
  for (const requestId of requestIds) await untilHidden(requestId);
  // A late count that completes none of the first five does not go on to the last one.
  await holdCount('late');
  const early = await submitAccepted(sluice, token, [{ identity: 'waits early' }]);
  let rounds = 0;
  gate.release();
  gate.hold(({ sql }) => {
    if (sql.includes('_row_exists') && sql.includes('failed_events')) rounds += 1;
    return false;
  });
  await until(async () => (await stateOf(early)) === undefined, {
    deadlineMs: busyMsMax,
    what: 'nobody is left to be hidden',
  });
  assert.equal(rounds, 1, 'only the round of the new request counts');

  gate.delay(({ sql }) => sql.includes('_row_exists') && sql.includes('failed_events'), 5_000);
  await letPassBegin();
  await until(async () => withRedis(sluice, (redis) => redis.exists(registryKeys.erasurePass)), {
    deadlineMs: busyMsMax,
    what: 'a pass has begun',
  });
  const waits = await submitAccepted(sluice, token, [{ identity: 'waits' }]);
  await letPassesRest();
  await until(async () => (await stateOf(waits)) === 'hidden', {
    deadlineMs: busyMsMax,
    what: 'the user is hidden',
  });
  const states = await Promise.all(requestIds.map((requestId) => stateOf(requestId)));
  assert.ok(states.includes('hidden'), 'some are not complete yet');
  for (const requestId of requestIds) await untilComplete(sluice, token, requestId, busyMsMax);
});

test('an account may have one deletion an hour erased at once, and its requests in between are not refused', async () => {
  const { accountId } = account;
  const set = (when: string) => sluice.admin('accounts', 'set', accountId, '--erase', when);
  const users = ['first', 'second', 'third'].map((identity) => ({ identity }));
  await sendEvents(sluice, main, 'go', users);
  await untilStored(sluice);
  await withRedis(sluice, (redis) => redis.del(registryKeys.erasureAsked(accountId)));
  assert.equal(((await set('now')) as { erase?: string }).erase, 'now');
  const [first, second, third] = users.map((user) => [user]);
  await untilComplete(sluice, token, await submitAccepted(sluice, token, first ?? []), busyMsMax);
  const metrics = await (await fetch(`${sluice.adminUrl}/metrics`)).text();
  assert.match(metrics, /^sluice_deletions_erase_now_total [1-9]/m);
  await letPassesRest();

  const between = await submitAccepted(sluice, token, second ?? []);
  await untilHidden(between);
  const soon = await submitWith(sluice, token, { users: third, erase: 'now' });
  assert.deepEqual([soon.status, soon.headers['retry-after']], [429, '3600']);
  await set('together');
  await withRedis(sluice, (redis) => redis.del(registryKeys.erasureAsked(accountId)));
  await untilHidden(await submitAccepted(sluice, token, third ?? []));
  assert.deepEqual([await stateOf(between), await maskedRows('second')], ['hidden', 1]);
});
