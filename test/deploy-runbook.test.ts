// deploy/RUNBOOK.md: its commands do what it says, in the order in which they stand there, on a deployment that has
// the history which they are for.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { usage } from '../src/admin/commands.js';
import {
  getToken,
  send,
  submitAccepted,
  type TestAccount,
  type User,
  untilComplete,
  untilStored,
} from './support/deletion.js';
import { readDeployFile, readYaml, root } from './support/deploy-file.js';
import { withRedis } from './support/redis-client.js';
import { type Block, programsNamedIn, readBlocks, runBlock } from './support/runbook.js';
import { type Child, type SluiceHandle, startSluice } from './support/services.js';
import { tempDir } from './support/temp-dir.js';
import { until } from './support/wait.js';

const text = readDeployFile('RUNBOOK.md');
const blocks = readBlocks();
const ran = new Set<Block>();
const folder = tempDir('runbook');
const people = ['ada', 'bob', 'carol', 'dave'];

let sluice: SluiceHandle;
let worker: Child;
let account: TestAccount;
let backup: string;
let backupBegan: string;
/** Request ids, by the person that they delete. */
const requests: Record<string, string> = {};

before(async () => {
  sluice = await startSluice({ workers: 0, env: { JOB_LOCK_MS: '500' } });
  worker = await sluice.addWorker();
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

/** Whose events can be queried. */
async function seen(): Promise<string[]> {
  const rows = await sluice.rows<{ identity: string }>(
    'SELECT DISTINCT identity FROM events ORDER BY identity',
  );
  return rows.map(({ identity }) => identity);
}

async function submit(...users: readonly User[]): Promise<string> {
  return submitAccepted(sluice, await getToken(sluice, account), users);
}

async function complete(requestId: string): Promise<void> {
  await untilComplete(sluice, await getToken(sluice, account), requestId);
}

/** Runs a worker that dies at a point of its code, instead of the one that runs. */
async function crashAt(point: string): Promise<void> {
  const crashing = await sluice.addWorker({ CRASH_AT: point });
  await crashing.exited;
}

test('names programs, commands, files and sections that exist', () => {
  for (const path of programsNamedIn(text)) assert.ok(existsSync(path), path);
  const known = usage.split('\n').map((line) => line.trim());
  const named = [...text.matchAll(/\badmin ((?!\w+ main)[a-z]+(?: [a-z]+)?)/g)].map(([, words]) =>
    String(words),
  );
  for (const words of named.filter((each) =>
    /^(accounts|environments|rejected|keys|failed|deletions)\b/.test(each),
  )) {
    const [subject, verb] = words.split(' ');
    assert.ok(
      known.some((line) => line.startsWith(`${subject} `) && line.includes(verb ?? '')),
      words,
    );
  }
  const headings = [...text.matchAll(/^#{2,3} (.*)$/gm)].map(([, title]) => anchorOf(String(title)));
  for (const [, target] of text.matchAll(/\]\(([^)]+)\)/g)) {
    const [file, anchor] = String(target).split('#');
    if (file !== '') assert.ok(existsSync(join(root, 'deploy', String(file))), target);
    else assert.ok(headings.includes(String(anchor)), target);
  }
});

function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(' ', '-')
    .replaceAll(/[^\w-]/g, '');
}

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

test('Keys: rotates the API key on the command line and over HTTP', async () => {
  assert.match(await run('Keys, tokens and passwords'), /"api_key":"/);
  const [, apiKey] = /"api_key":"([^"]+)"/.exec(await run('Keys, tokens and passwords')) ?? [];
  account = { accountId: sluice.bootstrap.account_id, appIds: [sluice.appId], apiKey: String(apiKey) };
  await run('Keys, tokens and passwords');
  assert.match(await getToken(sluice, account), /./);
});

test('Back up: makes a backup', async () => {
  // One request is begun: a worker kept its targets and went no further.
  await worker.stop();
  requests.carol = await submit({ identity: 'carol' });
  await crashAt('targets_kept');
  backupBegan = new Date().toISOString();
  const shown = await run('Back up');
  assert.match(shown, /status: +BACKUP_CREATED/);
  [, backup = ''] = /Disk\('backups', '(\w+)'\)/.exec(shown.replaceAll('\\', '')) ?? [];
  assert.match(backup, /^\d{8}T\d{6}Z$/);
});

test('Restore: notes the requests that are complete since the backup', async () => {
  await worker.restart();
  await complete(String(requests.carol));
  requests.ada = await submit({ identity: 'ada' });
  await complete(requests.ada);
  assert.deepEqual(await seen(), ['bob', 'dave']);
  await run('step 1', { BACKUP_BEGAN: backupBegan });
  const noted = readFileSync(join(folder, 'deletions-to-repeat.txt'), 'utf8');
  assert.deepEqual(
    noted
      .trim()
      .split('\n')
      .map((line) => line.split(' ')[0])
      .sort(),
    [requests.ada, requests.carol].sort(),
  );
});

test('Restore: brings back what the backup holds, and with it people who were deleted since', async () => {
  await worker.stop();
  // One more request, which found its users out and went no further.
  requests.dave = await submit({ identity: 'dave' });
  await crashAt('before_mutation');
  await sendEvent('frank');
  await run('step 3', { BACKUP: backup });
  assert.deepEqual(await seen(), ['ada', 'bob', 'carol', 'dave']);
});

test('Restore: takes the targets that the backup holds', async () => {
  await run('step 4');
  const lines = readFileSync(join(folder, 'targets-in-backup.jsonl'), 'utf8').trim().split('\n');
  assert.deepEqual(
    lines.map((line) => JSON.parse(line) as object),
    [{ request_id: requests.carol, identity: 'carol', user_id: null }],
  );
});

test('Restore: pending requests are carried out, and what waited in Redis is stored', async () => {
  await run('step 5');
  await run('step 6');
  await worker.restart();
  await complete(String(requests.dave));
  await untilStored(sluice);
  assert.deepEqual(await seen(), ['ada', 'bob', 'carol', 'frank']);
});

test('Restore: the callers delete again whom they had deleted', async () => {
  const users = [{ identity: 'ada' }, { identity: 'carol' }];
  writeFileSync(join(folder, 'users.json'), JSON.stringify({ users }));
  const shown = await run('step 7', { API_KEY: account.apiKey });
  assert.match(shown, /"status":"complete"/);
  assert.deepEqual(await seen(), ['bob', 'frank']);
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
    { deadlineMs: 10_000, what: 'the requests are copied' },
  );
  await withRedis(sluice, (redis) => redis.flushall());
  await until(async () => (await fetch(`${sluice.baseUrl}/health/ready`)).status === 503, {
    deadlineMs: 10_000,
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
  assert.deepEqual(await seen(), ['bob', 'frank', 'grace']);
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
