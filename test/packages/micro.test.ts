// `sluice-micro` as a test suite uses it: installed from its tarball, started, sent to, and asked what came.

import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { publint } from 'publint';
import { micro } from '../../src/contract/limits.js';
import { createMemory } from '../../src/libraries/micro/memory.js';
import { event, request } from '../harness/collect.js';
import { freePort } from '../harness/free-port.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { group, submissionOf } from '../support/shard.js';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
/** Another test makes packages too, at the same time. In the project, where their modules find what they import. */
const made = join(root, 'dist/packages-micro');
type Entry = Readonly<Record<string, unknown>>;

describe('sluice-micro', () => {
  let folder: string;
  let url: string;
  let started: ChildProcess;
  let port: number;
  let output = '';

  before(async () => {
    const packed = execFileSync(process.execPath, [join(root, 'deploy/pack.mjs'), 'micro'], {
      cwd: root,
      encoding: 'utf8',
    });
    folder = tempDir('micro');
    // There is no registry here, so the native front comes from the project.
    const overrides = { 'uWebSockets.js': `file:${join(root, 'node_modules/uWebSockets.js')}` };
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module', overrides }));
    const tarballs = packed
      .trim()
      .split('\n')
      .filter((path) => !path.includes('sluice-client'))
      .map((path) => join(root, path));
    const options = ['--offline', '--no-audit', '--no-fund', '--omit=optional', '--silent'];
    execFileSync('npm', ['install', ...options, ...tarballs], {
      cwd: folder,
      stdio: ['ignore', 'ignore', 2],
    });
    port = await freePort();
    url = `http://127.0.0.1:${port}`;
    started = start(String(port));
    started.stdout?.on('data', (text) => {
      output += text;
    });
    await until(() => output.includes(`sluice-micro: ${url}`), 'it says where it listens');
  });
  after(() => {
    started?.kill();
    removeTempDir(folder);
    rmSync(made, { recursive: true, force: true });
  });
  beforeEach(async () => void (await ask('POST', '/micro/reset')));

  function start(givenPort: string): ChildProcess {
    return spawn(join(folder, 'node_modules/.bin/sluice-micro'), [], {
      cwd: folder,
      env: { PATH: process.env.PATH, PORT: givenPort },
    });
  }

  async function ask(method: string, path: string) {
    const answer = await fetch(url + path, { method });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  }
  const events = async (query = '') => (await ask('GET', `/micro/events${query}`)).body.events as Entry[];
  const rejected = async (query = '') =>
    (await ask('GET', `/micro/rejected${query}`)).body.rejected as Entry[];
  const curl = (path: string, ...args: readonly string[]) =>
    spawnSync('curl', ['-s', ...args, url + path], { encoding: 'utf8' }).stdout;
  const track = (body: object, path = '/api/track') =>
    curl(path, '-H', 'Content-Type: application/json', '-d', JSON.stringify(body));

  test('tells what curl sent, each key once, whatever the environment is', async () => {
    const event = { app_id: '42', event: 'Signup', identity: 'ada', properties: { plan: 'pro' } };
    assert.equal(track({ ...event, idempotency_key: 'k', timestamp: '2026-03-01T12:00:00+01:00' }), '{}');
    assert.equal(track({ ...event, idempotency_key: 'k', event: 'Another' }), '{}');
    assert.equal(
      track({
        app_id: '7',
        events: [
          { event: 'A', user_id: '5' },
          { event: 'B', user_id: '5' },
        ],
      }),
      '{}',
    );
    assert.equal(
      track({ app_id: '42', identity: 'ada', properties: { age: 36 } }, '/api/add_user_properties'),
      '{}',
    );
    assert.equal(track({ app_id: '42', user_id: '9', identity: 'ada' }, '/api/v1/identify'), '{}');
    const sent = await events();
    assert.deepEqual(
      sent.map((one) => [one.table, one.app_id, one.event, one.identity, one.user_id]),
      [
        ['events', '42', 'Signup', 'ada', null],
        ['events', '7', 'A', '', '5'],
        ['events', '7', 'B', '', '5'],
        ['user_properties', '42', undefined, 'ada', null],
        ['user_identities', '42', undefined, 'ada', '9'],
      ],
    );
    assert.deepEqual([sent[0]?.time, sent[0]?.properties], ['2026-03-01T11:00:00.000Z', { plan: 'pro' }]);
    assert.equal((await events('?event=B&app_id=7')).length, 1);
    assert.deepEqual(await events('?event=Another'), []);
    assert.deepEqual(await rejected(), []);
  });

  test('tells what was refused as the service does, with why, where and what', async () => {
    const bad = { app_id: '42', event: '', identity: 'ada' };
    assert.match(track(bad), /"code":"empty"/);
    assert.match(track({ app_id: '42', events: [{ event: 'Good', identity: 'ada' }, bad] }), /"rejected":1/);
    assert.match(track({ app_id: '42', events: [bad] }), /"rejected":1/);
    assert.match(track({ app_id: 'x', event: 'A', identity: 'ada' }), /unknown_app_id/);
    assert.match(curl('/api/track', '-H', 'Content-Type: application/json', '-d', '{'), /invalid_json/);
    assert.match(curl('/api/track', '-d', '{}'), /invalid_content_type/);
    assert.match(curl('/api/trak', '-d', '{}'), /not_found/);
    const found = await rejected();
    assert.deepEqual(
      found.map((one) => [one.code, one.field, one.index]),
      [
        ['empty', 'event', undefined],
        ['empty', 'event', 1],
        ['empty', 'event', 0],
        ['unknown_app_id', 'app_id', undefined],
        ['invalid_json', undefined, undefined],
        ['invalid_content_type', undefined, undefined],
        ['not_found', undefined, undefined],
      ],
    );
    assert.deepEqual([found[1]?.value, found[1]?.message], [bad, 'event must not be empty.']);
    assert.equal(found.at(-1)?.endpoint, '/api/trak');
    assert.deepEqual(
      (await events()).map((one) => one.event),
      ['Good'],
    );
    assert.equal((await rejected('?code=empty')).length, 3);
  });

  test('forgets at a reset, keys too, and checks as a lenient environment if asked', async () => {
    const nested = {
      app_id: '42',
      event: 'A',
      identity: 'ada',
      properties: { a: { b: true } },
      idempotency_key: 'k',
    };
    assert.match(track(nested), /invalid_type/);
    assert.deepEqual(await ask('POST', '/micro/reset?validation=lenient'), { status: 200, body: {} });
    assert.deepEqual([await events(), await rejected()], [[], []]);
    assert.equal(track(nested), '{}');
    assert.deepEqual(
      (await events()).map((one) => one.properties),
      [{ 'a.b': 'true' }],
    );
    await ask('POST', '/micro/reset?validation=lenient');
    assert.equal(track(nested), '{}');
    assert.equal((await events()).length, 1);
    await ask('POST', '/micro/reset');
    assert.match(track(nested), /invalid_type/);
  });

  test('deletes as a compliance caller asks, with a token, and forgets who was deleted', async () => {
    const api = '/api/public/v0';
    const authorized = (token: string) => ({
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
    });
    const post = async (path: string, headers: Record<string, string>, body?: object) => {
      const answer = await fetch(url + api + path, { method: 'POST', headers, body: JSON.stringify(body) });
      return { status: answer.status, body: (await answer.json()) as Record<string, string> };
    };
    const basic = (credentials: string) => ({
      authorization: `Basic ${Buffer.from(credentials).toString('base64')}`,
    });
    const refused = await post('/auth_token', basic('42:'));
    assert.deepEqual(
      [refused.status, refused.body.error],
      [401, 'Unauthorized: the credentials are invalid.'],
    );
    const { access_token: token = '' } = (await post('/auth_token', basic('42:key'))).body;
    const users = [{ identity: 'ada' }, { user_id: 7 }];
    for (const headers of [authorized('other'), {}])
      assert.equal((await post('/user_deletion', headers, { users })).status, 401);
    assert.equal((await post('/user_deletion', authorized(token), { users: [{ user_id: -1 }] })).status, 400);
    assert.equal((await post('/user_deletion', authorized(token), { users: [] })).status, 400);

    track({ app_id: '42', user_id: '9', identity: 'ada' }, '/api/v1/identify');
    track({ app_id: '42', event: 'Of ada, merged', user_id: '9' });
    track({ app_id: '42', event: 'Of 7', user_id: '7', idempotency_key: 'k7' });
    track({ app_id: '42', event: 'Of bob', identity: 'bob', idempotency_key: 'kb' });
    track({ app_id: '43', event: 'Of another ada', identity: 'ada' });
    const preview = await post('/user_deletion', authorized(token), { users, dry_run: true });
    assert.deepEqual([preview.status, preview.body.users_found, preview.body.rows], [200, 2, 3]);
    const submitted = await post('/user_deletion', authorized(token), { users, reference: 'r-1' });
    assert.deepEqual([submitted.status, submitted.body.status], [201, 'pending']);
    const { deletion_request_id: id, deletion_request_location: location = '' } = submitted.body;
    assert.equal(location, `${url}${api}/deletion_status/${id}`);
    const status = async (accessToken: string) => fetch(location, { headers: authorized(accessToken) });
    const answered = (await (await status(token)).json()) as Entry;
    assert.deepEqual([answered.deletion_request_id, answered.status, answered.users], [id, 'complete', 2]);
    const stranger = (await post('/auth_token', basic('43:key'))).body.access_token ?? '';
    assert.deepEqual([(await status(stranger)).status, (await status('none')).status], [404, 401]);
    assert.deepEqual(
      (await events()).map((one) => one.event),
      ['Of bob', 'Of another ada'],
    );

    const asked = { app_id: '42', idempotency_keys: ['kb', 'k7', 'none'] };
    const headers = { 'content-type': 'application/json' };
    const found = await fetch(`${url}/api/v1/receipts`, {
      method: 'POST',
      headers,
      body: JSON.stringify(asked),
    });
    assert.deepEqual(
      ((await found.json()) as { receipts: Entry[] }).receipts.map(({ status: answered }) => answered),
      ['stored', 'deleted', 'unknown'],
    );

    const reordered = { users: users.toReversed(), reference: 'r-1' };
    const again = await post('/user_deletion', authorized(token), reordered);
    assert.deepEqual([again.status, again.body.deletion_request_id], [200, id]);
    const others = await post('/user_deletion', authorized(token), {
      users: [{ user_id: 1 }],
      reference: 'r-1',
    });
    assert.equal(others.status, 409);
  });

  test('refuses questions that it does not understand', async () => {
    assert.equal((await ask('POST', '/micro/reset?validation=none')).status, 400);
    assert.equal((await ask('GET', '/micro/events?event=%ff')).status, 400);
    assert.equal((await ask('GET', '/micro/reset')).status, 405);
    assert.equal((await ask('POST', '/micro/events')).status, 405);
    assert.equal((await ask('GET', '/micro/nothing')).status, 404);
  });

  test('accepts what the library for servers sends, compressed, and Segment’s messages', async () => {
    const program = join(folder, 'send.js');
    writeFileSync(
      program,
      `import { createSluice } from 'sluice-server';
      const sluice = createSluice({ baseUrl: '${url}', appId: '42' });
      sluice.track({ event: 'From a server', identity: 'ada', properties: { text: 'x'.repeat(900) } });
      await sluice.close();`,
    );
    execFileSync(process.execPath, [program], { cwd: folder });
    const batch = gzipSync(
      JSON.stringify({
        batch: [{ type: 'track', event: 'Segment', userId: 'ada', messageId: 'm' }],
        writeKey: '42',
      }),
    );
    const answer = await fetch(`${url}/v1/batch`, {
      method: 'POST',
      body: batch,
      headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' },
    });
    assert.equal(answer.status, 200);
    assert.deepEqual((await events()).map((one) => one.event).sort(), ['From a server', 'Segment']);
  });

  test('serves the script for pages, and accepts what it sends from any of them', async () => {
    const script = await fetch(`${url}/sdk.js`);
    assert.deepEqual([script.status, (await script.text()).includes('sluice:')], [200, true]);
    const sent = request('42', [event({ event: 'Opened' }), event({ event: '' })]);
    const answer = await fetch(`${url}/api/collect`, { method: 'POST', body: JSON.stringify(sent) });
    assert.equal(answer.headers.get('access-control-allow-origin'), '*');
    assert.deepEqual(
      [await events(), await rejected()].map((found) => found.map((one) => one.event ?? one.code)),
      [['Opened'], ['empty']],
    );
  });

  test('says in one line that its port is taken or invalid', async () => {
    for (const [given, line] of [
      [String(port), /^sluice-micro: PORT: cannot listen on 127\.0\.0\.1:\d+; is it in use\?\n$/],
      ['x', /^sluice: PORT must be a whole number from 1 to 65535, not "x"\n$/],
    ] as const) {
      const other = start(given);
      const [said, [code]] = await Promise.all([text(other.stderr ?? assert.fail()), once(other, 'close')]);
      assert.equal(code, 1);
      assert.match(said, line);
    }
  });

  test('its package is sound, and has a page without links out of it', async () => {
    const pkgDir = join(folder, 'node_modules/sluice-micro');
    assert.deepEqual((await publint({ pkgDir, strict: true, level: 'warning' })).messages, []);
    assert.doesNotMatch(readFileSync(join(pkgDir, 'README.md'), 'utf8'), /\]\((?!https?:|#)/);
  });
});

describe('its memory', () => {
  const record = (claim: string | undefined, name: string) => ({
    table: 0,
    row: `["1","${'0'.repeat(32)}",${JSON.stringify(name)},null,"ada","",null,{},`,
    claim,
  });
  const lettersOf = (memory: ReturnType<typeof createMemory>, ...records: ReturnType<typeof record>[]) =>
    new Promise<string>((resolve) => {
      memory.committer.submit(submissionOf(group(records)), ([result]) => {
        resolve(result?.kind === 'committed' ? result.letters : String(result?.kind));
      });
    });

  test('forgets the oldest beyond its count and its bytes, and says how many', async () => {
    const memory = createMemory();
    for (let sent = 0; sent < micro.entriesMax + 5; sent += 1_001) {
      const count = Math.min(1_001, micro.entriesMax + 5 - sent);
      await lettersOf(
        memory,
        ...Array.from({ length: count }, (_, at) => record(undefined, String(sent + at))),
      );
    }
    const kept = memory.events.all();
    assert.deepEqual([kept.length, kept[0]?.event, memory.events.dropped()], [micro.entriesMax, '5', 5]);
    memory.rejected.add({ n: 1 }, micro.bytesMax);
    memory.rejected.add({ n: 2 }, micro.bytesMax);
    assert.deepEqual([memory.rejected.all(), memory.rejected.dropped()], [[{ n: 2 }], 1]);
    memory.reset();
    assert.deepEqual([memory.events.all(), memory.events.dropped(), memory.rejected.all()], [[], 0, []]);
  });

  test('knows keys up to its bound, in one request and in several', async () => {
    const memory = createMemory();
    assert.equal(await lettersOf(memory, record('a', 'x'), record('a', 'y'), record(undefined, 'z')), 'srs');
    assert.equal(await lettersOf(memory, record('a', 'x')), 'r');
    const keys = Array.from({ length: micro.keysMax }, (_, at) => record(String(at), 'x'));
    for (let at = 0; at < keys.length; at += 1_000) await lettersOf(memory, ...keys.slice(at, at + 1_000));
    assert.equal(await lettersOf(memory, record('a', 'x')), 's', 'forgotten');
  });
});
