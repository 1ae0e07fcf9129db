// deploy/RUNBOOK.md: its commands, run in their order on a deployment with the history that they are for, do what the page
// says.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, test } from 'node:test';
import type { TestAccount } from '../../harness/accounts.js';
import { getToken, send, submitAccepted, untilComplete, untilStored } from '../../harness/deletion.js';
import { withRedis } from '../../harness/redis-client.js';
import { type SluiceHandle, startSluice } from '../../harness/services.js';
import { tempDir } from '../../harness/temp-dir.js';
import { until } from '../../harness/wait.js';
import { usage } from '../../src/admin/command-line.js';
import { readDeployFile, readYaml } from '../support/deploy-file.js';
import { type Block, prelude, programsNamedIn, readBlocks, runBlock } from '../support/runbook.js';

const text = readDeployFile('RUNBOOK.md');
const blocks = readBlocks(text);
const ran = new Set<Block>();
const folder = tempDir('runbook');
const people = ['ada', 'bob', 'carol', 'dave'];

let sluice: SluiceHandle;
let account: TestAccount;
let backup: string;

before(async () => {
  sluice = await startSluice();
  for (const identity of people) await sendEvent(identity);
});

after(() => sluice?.stop());

/** Runs the next block of a section. */
async function run(section: string, more: NodeJS.ProcessEnv = {}): Promise<string> {
  const block = blocks.find((each) => each.section === section && !ran.has(each));
  assert.ok(block, `${section} has one more block`);
  ran.add(block);
  return runBlock(sluice, block, folder, more);
}

function sendEvent(identity: string): Promise<void> {
  return send(sluice, '/api/track', { app_id: sluice.appId, event: 'Seen', identity });
}

/** The users whose events can be queried. */
async function seen(): Promise<string[]> {
  const rows = await sluice.rows<{ identity: string }>(
    'SELECT DISTINCT identity FROM events ORDER BY identity',
  );
  return rows.map(({ identity }) => identity);
}

test('names programs and commands that exist', () => {
  for (const path of programsNamedIn(text)) assert.ok(existsSync(path), path);
  for (const definition of prelude.trim().split('\n').slice(1))
    assert.ok(text.includes(definition), definition);
  const known = usage.split('\n').map((line) => line.trim());
  const named = [...text.matchAll(/\badmin ((?!\w+ main)[a-z-]+(?: [a-z]+)?)/g)].map(([, words]) =>
    String(words),
  );
  for (const words of named.filter((each) =>
    /^(accounts|environments|rejected|keys|write-keys|failed|deletions|backup)\b/.test(each),
  )) {
    const [subject, verb] = words.split(' ');
    assert.ok(
      known.some((line) => line.startsWith(`${subject} `) && line.includes(verb ?? '')),
      words,
    );
  }
});

test('Start: makes an account', async () => {
  assert.match(await run('Start'), /"name":"Shop"/);
});

test('Look: shows what there is', async () => {
  await untilStored(sluice);
  const shown = await run('Look');
  assert.match(shown, /"ready":true/);
  assert.match(shown, /^sluice_backlog_oldest_seconds\{shard="0"\} 0$/m);
  assert.match(shown, /stored_events/);
  assert.match(shown, /^aof_enabled:1/m);
});

test('Stop and drain: sees the backlog empty', async () => {
  assert.match(await run('Stop and drain'), /^0$/m);
});

test('Keys: rotates the API key on the command line and over HTTP, and makes a write key', async () => {
  assert.match(await run('Keys, tokens and passwords'), /"last_used_at":null,"expires_at":"/);
  const [, apiKey] = /"api_key":"([^"]+)"/.exec(await run('Keys, tokens and passwords')) ?? [];
  account = { accountId: sluice.bootstrap.account_id, appIds: [sluice.appId], apiKey: String(apiKey) };
  assert.match(await run('Keys, tokens and passwords'), /"write_key":"slw_[\s\S]*"name":"shop, 2026"/);
  await run('Keys, tokens and passwords');
  assert.match(await getToken(sluice, account), /./);
});

test('Back up: makes a backup', async () => {
  const shown = await run('Back up');
  assert.match(shown, /"status":"complete"/);
  [, backup = ''] = /"name":"(\w+)"/.exec(shown) ?? [];
  assert.match(backup, /^\d{8}T\d{6}Z$/);
});

test('Restore: brings back what the backup holds, without the people who were deleted since', async () => {
  const request = await submitAccepted(sluice, await getToken(sluice, account), [{ identity: 'ada' }]);
  await untilComplete(sluice, await getToken(sluice, account), request);
  await sendEvent('frank');
  await untilStored(sluice);
  const shown = await run('Restore ClickHouse from a backup', { BACKUP: backup });
  assert.match(shown, /"deleted_again":\{"requests":1,"rows":1\},"submit_again":\[\]/);
  assert.deepEqual(await seen(), ['bob', 'carol', 'dave']);
});

test('Redis is lost: the state is what it was, not what the backup held', async () => {
  const states = async () =>
    ((await sluice.admin('deletions', 'list')) as { deletion_request_id: string; status: string }[])
      .map(({ deletion_request_id, status }) => `${deletion_request_id} ${status}`)
      .sort();
  const lists = async () => [await sluice.admin('accounts', 'list'), await states()];
  const known = await lists();
  await until(
    () => withRedis(sluice, async (redis) => (await redis.scard('{registry}:deletions_unmirrored')) === 0),
    { deadlineMs: 60_000, what: 'the requests are copied' },
  );
  await withRedis(sluice, (redis) => redis.flushall());
  await until(async () => (await fetch(`${sluice.baseUrl}/health/ready`)).status === 503, {
    deadlineMs: 60_000,
    what: 'the API sees that the state is gone',
  });
  const shown = await run('Redis is lost');
  assert.match(shown, /"state":"restored"/);
  assert.deepEqual(await lists(), known);
  // The key that was rotated before the backup still opens, and the one before that does not.
  assert.match(await getToken(sluice, account), /./);
});

test('ClickHouse is away: shows how long there is room', async () => {
  await sluice.clickhouse.stop();
  await sendEvent('grace');
  assert.match(await run('ClickHouse is away'), /^sluice_backlog_rows\{shard="0"\} [1-9]/m);
  await sluice.clickhouse.restart();
  await untilStored(sluice);
  assert.deepEqual(await seen(), ['bob', 'carol', 'dave', 'grace']);
});

test('Alerts: the commands that look into refused rows and failing deletions', async () => {
  assert.match(await run('SluiceRowsQuarantined'), /"retried":0/);
  assert.match(await run('SluiceDeletionsFail'), /"status":"complete"/);
});

test('no block was left out', () => {
  assert.deepEqual(
    blocks.filter((block) => !ran.has(block)).map(({ section, commands }) => `${section}: ${commands}`),
    [],
  );
});

test('the disk of the backups is the one that the ClickHouse of compose.yaml has', () => {
  const xml = readDeployFile('clickhouse/sluice.xml');
  assert.match(xml, /<backups>\s*<type>local<\/type>\s*<path>\/backups\/<\/path>/);
  assert.match(xml, /<allowed_disk>backups<\/allowed_disk>/);
  const compose = readYaml<{ services: { clickhouse: { volumes: string[] } } }>('compose.yaml');
  assert.ok(compose.services.clickhouse.volumes.some((volume) => volume.endsWith(':/backups')));
});
