// The books of a whole deployment: every acknowledged record is in one term of its minute, and a minute that does not add up is noticed.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { CheckedBooks, DayOfBooks } from '../../src/insights/ledger/show.js';
import { registryKeys } from '../../src/redis/keys.js';
import { administer, deleteNow, untilStored } from '../harness/deletion.js';
import { readMetric } from '../harness/fault-checks.js';
import { paths, post } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import type { ApiHandle } from '../harness/services.js';
import { setSuppressed } from '../harness/suppression.js';
import { until } from '../harness/wait.js';
import { deletionWorld } from '../support/deletion-world.js';
import { test } from '../support/test.js';

const world = await deletionWorld();
const { sluice, token, main, staging, elsewhere } = world;

const send = async (path: string, body: object) => (await post(sluice.baseUrl, path, body)).status;
/** Today's date, once the day has enough seconds left for everything that a test sends. */
async function today(): Promise<string> {
  const dayMs = 86_400_000;
  const leftMs = dayMs - (Date.now() % dayMs);
  if (leftMs < 20_000) await pause(leftMs);
  return new Date().toISOString().slice(0, 10);
}
const check = () => administer<CheckedBooks>(sluice, 'GET', '/ledger/check');
const metric = () => readMetric(sluice.api[0] as ApiHandle, 'sluice_ledger_differences');
/** Settles when this many differences are shown. Skips the pauses between checks, which are longer on a busy machine. */
async function untilShown(differences: number, what: string): Promise<void> {
  const checked = async () => {
    await withRedis(sluice, (redis) => redis.hdel(registryKeys.ledgerChecked, 'rests_new', 'rests_older'));
    return (await metric()) === differences;
  };
  await until(checked, { deadlineMs: 240_000, what, everyMs: 1_000 });
}
const deleteRows = (condition: string) =>
  sluice.rows(`ALTER TABLE stored_events DELETE WHERE ${condition} SETTINGS mutations_sync = 1`);
/** Settles when everything that was sent until now is written and can be balanced. */
async function untilWritten(): Promise<void> {
  const sent = Date.now();
  await until(async () => Date.parse((await check()).to) > sent, {
    deadlineMs: 150_000,
    what: 'the minute is over and written',
    everyMs: 1_000,
  });
}

describe('the books', () => {
  test('name every record that was acknowledged once, and add up', async () => {
    const day = await today();
    const ada = { app_id: main, identity: 'ada@example.com' };
    const keyed = { ...ada, event: 'Keyed', idempotency_key: 'one' };
    const statuses = [
      await send(paths.track, keyed),
      await send(paths.track, keyed),
      await send(paths.track, { ...keyed, event: 'Another' }),
      await send(paths.track, { ...keyed, event: 'A third' }),
      await send(paths.track, { ...keyed, event: 'A fourth' }),
      await send(paths.track, { ...ada, event: 7 }),
      await send(paths.track, {
        app_id: main,
        events: [
          { identity: 'ada@example.com', event: 'Bulk' },
          { identity: 'bob@example.com', event: 'Bulk' },
          { identity: 'bob@example.com', event: 7 },
        ],
      }),
      await send('/api/add_user_properties', { ...ada, properties: { plan: 'pro' } }),
      await send('/api/v1/identify', { ...ada, user_id: '77' }),
      await send(paths.track, { ...ada, event: 'Refused' }),
      await send(paths.track, { app_id: elsewhere, identity: 'eve@example.com', event: 'Elsewhere' }),
    ];
    assert.deepEqual(statuses, [200, 200, 200, 200, 200, 400, 200, 200, 200, 200, 200]);
    await setSuppressed(sluice.baseUrl, token, [{ identity: 'shy@example.com' }], true);
    assert.equal(
      await send(paths.track, { app_id: main, identity: 'shy@example.com', event: 'Unseen' }),
      200,
    );
    await untilStored(sluice);
    // Moves the event to where it would be if ClickHouse had refused it.
    await sluice.rows(`INSERT INTO failed_events (table_name, segment, line, app_id, identity, row, error)
      SELECT 'events', segment, 1, app_id, identity, '[]', '' FROM stored_events WHERE event = 'Refused'`);
    await deleteRows(`event = 'Refused'`);
    await deleteNow(sluice, token, [{ identity: 'bob@example.com' }]);

    await untilWritten();
    const { acknowledged, stored, repeats, suppressed, deleted, failed, waiting, difference } =
      await administer<DayOfBooks>(sluice, 'GET', `/environments/${main}/ledger?day=${day}`);
    assert.deepEqual(
      { acknowledged, stored, repeats, suppressed, deleted, failed, waiting, difference },
      {
        acknowledged: stored + repeats + suppressed + deleted + failed,
        stored: 4,
        repeats: 4,
        suppressed: 1,
        deleted: 1,
        failed: 1,
        waiting: 0,
        difference: 0,
      },
    );
    for (const wrong of ['2026-02-31', '0001-01-01', '9999-12-31', 'today', '%27'])
      await assert.rejects(
        administer(sluice, 'GET', `/environments/${main}/ledger?day=${wrong}`),
        /the day must be/,
      );
    for (const wrong of ['3', '2026-02-30', '2026-02-20T10:00:00'])
      await assert.rejects(administer(sluice, 'GET', `/ledger/check?from=${wrong}`), /from and to must be/);
    await assert.rejects(
      administer(sluice, 'GET', '/ledger/check?from=2099-01-01T00:00:00Z'),
      /nothing can be compared/,
    );
    const books = await check();
    assert.deepEqual([books.balanced, books.differences, books.not_checked], [true, [], []]);
    const stats = (await sluice.admin('environments', 'stats', main)) as {
      differing_repeats: number;
      suppressed: number;
    };
    assert.equal(stats.suppressed, 1);
    // One in 255 differing repeats goes unnoticed.
    assert.ok(stats.differing_repeats >= 1 && stats.differing_repeats <= 3, `${stats.differing_repeats}`);
  });

  test('show what is lost or doubled, with environment, minute and number, until it is put right', async () => {
    const day = await today();
    assert.equal(await send(paths.track, { app_id: staging, identity: 'a', event: 'Kept' }), 200);
    assert.equal(await send(paths.track, { app_id: staging, identity: 'a', event: 'Lost' }), 200);
    assert.equal(await send(paths.track, { app_id: elsewhere, identity: 'b', event: 'Twice' }), 200);
    await untilStored(sluice);
    await sluice.rows(
      `CREATE TABLE lost ENGINE = Memory AS SELECT * FROM stored_events WHERE event = 'Lost'`,
    );
    await deleteRows(`event = 'Lost'`);
    await sluice.rows(
      `INSERT INTO stored_events SELECT * FROM stored_events WHERE event = 'Twice' SETTINGS insert_deduplication_token = 'twice'`,
    );
    await untilWritten();
    const { balanced, differences } = await check();
    assert.equal(balanced, false);
    assert.deepEqual(
      new Set(differences.map(({ app_id, kind, records }) => `${app_id} ${kind} ${records}`)),
      new Set([`${staging} events 1`, `${elsewhere} events -1`]),
    );
    const found = spawnSync(
      process.execPath,
      [fileURLToPath(new URL('../../src/admin/main.js', import.meta.url)), 'ledger', 'check'],
      { env: sluice.env, encoding: 'utf8' },
    );
    assert.equal(found.status, 1, found.stderr);
    await untilShown(2, 'both are noticed');
    assert.equal(((await sluice.admin('ledger', 'differences')) as unknown[]).length, 2);
    const shown = (await sluice.admin('ledger', 'show', staging, '--day', day)) as DayOfBooks;
    assert.equal(shown.difference, 1);

    await sluice.rows(
      "INSERT INTO stored_events SELECT * FROM lost SETTINGS insert_deduplication_token = 'again'",
    );
    await sluice.rows(
      `CREATE TABLE once ENGINE = Memory AS SELECT * FROM stored_events WHERE event = 'Twice' LIMIT 1`,
    );
    await deleteRows(`event = 'Twice'`);
    await sluice.rows(
      "INSERT INTO stored_events SELECT * FROM once SETTINGS insert_deduplication_token = 'once'",
    );
    await untilShown(0, 'they are put right');
  });
});
