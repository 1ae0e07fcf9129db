// The commands on the pages for users, executed exactly as written: the first event of the README, and the walk-throughs
// of a deletion, a suppression and an export.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventIdOfKey } from '../../src/ingest/event-id.js';
import { freePort } from '../harness/free-port.js';
import { untilStored } from '../harness/ingestion.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { root } from '../support/deploy-file.js';
import { type Block, readBlocks, runBlock } from '../support/runbook.js';
import { ownSluice } from '../support/sluice.js';

const folder = tempDir('pages');

const sluice = await ownSluice({ env: { CALLBACK_ALLOW: '127.0.0.1' } });

function blocksOf(path: string): Block[] {
  return readBlocks(readFileSync(join(root, path), 'utf8'));
}

/** Replaces what only the deployment of `npm start` has; each has to be there. */
function replaced(commands: string, replacements: readonly (readonly [string, string])[]): string {
  return replacements.reduce((text, [from, to]) => {
    assert.ok(text.includes(from), `${from} stands in\n${text}`);
    return text.replaceAll(from, to);
  }, commands);
}

test('README: the first event is tracked, and its query finds it and sums its property', async () => {
  const [track, query, ...more] = blocksOf('README.md').filter(
    ({ section }) => section === 'The first event',
  );
  assert.ok(track && query && more.length === 0);
  const tracked = await runBlock(
    sluice,
    {
      ...track,
      commands: replaced(track.commands, [
        ['APP_ID=…   # as printed\n', ''],
        ['http://127.0.0.1:8080/', `${sluice.baseUrl}/`],
      ]),
    },
    folder,
  );
  assert.match(tracked, /\{\}$/m);
  const commands = replaced(query.commands, [
    ['.data/clickhouse-reader-password', join(sluice.clickhouse.dir, 'clickhouse-reader-password')],
    ['http://127.0.0.1:8123/', `${sluice.clickhouse.origin}/`],
  ]);
  const found = await until(async () => {
    const text = await runBlock(sluice, { ...query, commands }, folder);
    return text.includes('Order Completed') && text;
  }, 'the event can be queried');
  assert.match(found, /Order Completed +│ ada@example\.com +│ +12\.5 +│/);

  const tables = readFileSync(join(root, 'src/clickhouse/README.md'), 'utf8');
  const [, computed = ''] = /event_id = (toUUID\(.+\))$/m.exec(tables) ?? [];
  const appId = sluice.appId;
  const eventId = replaced(computed, [
    ['42', appId],
    ['order-1001-completed', 'order-1001'],
  ]);
  assert.deepEqual(
    await sluice.rows(`SELECT event FROM events WHERE app_id = '${appId}' AND event_id = ${eventId}`),
    [{ event: 'Order Completed' }],
  );
  // Message ids have their own keyspace.
  const [, before = ''] = /^`'(messages.+)KEY'`/m.exec(tables) ?? [];
  const ofMessage = replaced(eventId, [[`${appId}\\0`, replaced(before, [['42', appId]])]]);
  const [{ id }] = (await sluice.rows<{ id: string }>(
    `SELECT replace(toString(${ofMessage}), '-', '') AS id`,
  )) as [{ id: string }];
  assert.equal(id, eventIdOfKey(appId, 'order-1001', 'messages'));
});

test('deletion: the walk-through ends with a complete request, its evidence, and nothing left', async () => {
  const blocks = blocksOf('src/privacy/deletion/README.md');
  assert.equal(
    blocks.length,
    14,
    'event, token, submission, status, list, users, dry run, receiver, callback, signature, no callback, certificate, evidence, retention',
  );
  // One shell, since later blocks use the variables of earlier ones.
  const commands = blocks.map((block) => block.commands).join('\necho\n');
  const said = await runBlock(sluice, { section: 'Walk-through', commands }, folder, {
    API_KEY: String(sluice.bootstrap.api_key),
    ACCOUNT_ID: String(sluice.bootstrap.account_id),
    HOOK: `http://127.0.0.1:${await freePort()}/`,
  });
  assert.match(said, /"deletion_request_id":"[\w-]{36}","status":"pending"/);
  assert.match(said, /"deletion_request_id":"[\w-]{36}","status":"complete"/);
  assert.match(
    said,
    /"users":2,"hidden_at":"[^"]+","completed_at":"[^"]+","users_found":1,"rows_deleted":2,/,
  );
  assert.match(
    said,
    /^\{"users":\[\{"place":0,"found":true,"rows":2,"similar":0\},\{"place":1,"found":false,/m,
  );
  assert.match(said, /^\{"users":\[\{"found":false,"rows":0,"similar":0\}\]\}$/m);
  assert.match(said, /\{"deletions":\[\{"deletion_request_id":"[\w-]{36}","status":"complete"/);
  assert.match(
    said,
    /^\{"dry_run":true,"users":1,"users_found":0,"rows":0,"found":\[\],"unclear":\[\{"place":0,"found":false,/m,
  );
  assert.equal(
    [...said.matchAll(/^\{"genuine":true,"key_id":"[0-9a-f]{16}",/gm)].length,
    2,
    'with the service and without',
  );
  const evidence = said.split('\n').find((line) => line.includes('"mutations"'));
  assert.ok(evidence, said);
  const { found, ...request } = JSON.parse(evidence) as Record<string, unknown> & { found: object[] };
  assert.ok(found.some((each) => JSON.stringify(each).includes('stored_events')));
  for (const field of ['account_id', 'app_id', 'key_created_at', 'submitted_at', 'completed_at', 'targets']) {
    assert.ok(request[field], field);
  }
  assert.doesNotMatch(evidence, /ada@example/);
  assert.match(said, /^genuine: \{"type":"test","account_id":"/m);
  assert.match(said, /"retain_days":400/);
});

test('suppression: the walk-through keeps a user out, counts what it left out, and frees the user', async () => {
  const blocks = blocksOf('src/privacy/suppression/README.md');
  assert.equal(blocks.length, 6, 'token, suppression, an event, look-ups, deletion, freeing');
  const commands = blocks.map((block) => block.commands).join('\necho\n');
  const said = await runBlock(sluice, { section: 'Walk-through', commands }, folder, {
    API_KEY: String(sluice.bootstrap.api_key),
  });
  assert.match(said, /^\{"users":2,"suppress":true\}$/m);
  assert.match(said, /^\{"suppressed":true,"since":"20[^"]+Z"\}$/m);
  assert.match(said, /^\{"users":2,"names":2,"records":[01]\}$/m);
  assert.match(said, /"deletion_request_id":"[\w-]{36}","status":"pending"/);
  assert.match(said, /^\{"users":2,"suppress":false\}$/m);
  await untilStored(sluice);
  const events = await sluice.rows("SELECT 1 FROM stored_events WHERE identity = 'carl@example.com'");
  assert.deepEqual(events, []);
});

test('export: the walk-through ends with the event and the last line', async () => {
  const blocks = blocksOf('src/privacy/export/README.md');
  assert.equal(blocks.length, 6, 'an event, token, request, status, data, archive');
  const commands = blocks.map((block) => block.commands).join('\necho\n');
  const said = await runBlock(sluice, { section: 'Walk-through', commands }, folder, {
    API_KEY: String(sluice.bootstrap.api_key),
  });
  assert.match(said, /"user_export_id":"[\w-]{36}","status":"pending"/);
  assert.match(said, /\{"kind":"event",.*"event":"Signed Up",.*"identity":"bob@example.com"/);
  assert.match(said, /\{"kind":"end","records":1\}\n/);
  assert.equal(readFileSync(join(folder, 'data.zip')).toString('latin1', 0, 4), 'PK\x03\x04');
});
