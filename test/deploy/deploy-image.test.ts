// deploy/Dockerfile: its steps are executed in folders, and the result is started as the image's user. No container
// engine runs here, so this machine stands in for the base image.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { validate } from 'dockerfile-utils';
import { type Child, startChild } from '../harness/child.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { type ClickHouseHandle, type RedisHandle, startClickHouse, startRedis } from '../harness/services.js';
import { track } from '../harness/track.js';
import { until } from '../harness/wait.js';
import { readDeployFile, root } from '../support/deploy-file.js';
import { buildImage, type Image } from '../support/dockerfile.js';

let image: Image;
let redis: RedisHandle;
let clickhouse: ClickHouseHandle;
let env: NodeJS.ProcessEnv;
const started: Child[] = [];

before(async () => {
  // The build installs the same packages as this project's set-up, since both use the same lock file.
  image = buildImage({ command: 'npm ci', folder: 'node_modules' });
  [redis, clickhouse] = await Promise.all([startRedis({ appendfsync: 'no' }), startClickHouse()]);
  env = { ...plainEnvironment(), ...image.env, REDIS_URL: redis.url, CLICKHOUSE_URL: clickhouse.url };
});

after(async () => {
  for (const child of started) await child.stop();
  await clickhouse?.remove();
  await redis?.remove();
});

/** A command of the image, as its user where this process may change that. */
function asUser(command: readonly string[]): [string, string[]] {
  const [program, ...args] = command.map((word) => (word === 'node' ? process.execPath : word));
  if (process.getuid?.() !== 0) return [String(program), args];
  const [uid, gid] = image.user.split(':');
  return [
    'setpriv',
    ['--reuid', String(uid), '--regid', String(gid), '--clear-groups', String(program), ...args],
  ];
}

function run(command: readonly string[], more: NodeJS.ProcessEnv = {}) {
  const [program, args] = asUser(command);
  const cwd = join(image.folder, image.workdir);
  return spawnSync(program, args, { cwd, env: { ...env, ...more }, encoding: 'utf8' });
}

async function start(name: string, command: readonly string[], more: NodeJS.ProcessEnv): Promise<Child> {
  const [program, args] = asUser(command);
  const child = await startChild({
    name,
    program: { command: program, args, env: { ...env, ...more }, cwd: join(image.folder, image.workdir) },
    healthy: () => true,
    healthyDeadlineMs: 10_000,
  });
  started.push(child);
  return child;
}

test('a linter finds nothing wrong in the Dockerfile', () => {
  assert.deepEqual(validate(readDeployFile('Dockerfile')), []);
});

test('says what it is in the labels that registries read', () => {
  const { license, version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Record<
    string,
    string
  >;
  const label = (name: string) => image.labels[`org.opencontainers.image.${name}`];
  assert.deepEqual([label('title'), label('licenses')], ['Sluice', license]);
  // Whoever builds the image sets these.
  assert.deepEqual([label('version'), label('revision')], ['unknown', 'unknown']);
  assert.match(readDeployFile('Dockerfile'), new RegExp(`--build-arg VERSION=${version} `));
});

test('contains only what the processes need: no build tools, tests or sources, no embedded ClickHouse', () => {
  const folder = join(image.folder, image.workdir);
  assert.deepEqual(readdirSync(image.folder), ['app']);
  assert.deepEqual(readdirSync(folder).sort(), ['dist', 'node_modules', 'package.json']);
  assert.deepEqual(readdirSync(join(folder, 'dist')).sort(), ['sdk.js', 'sdk.js.map', 'src', 'workers']);
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean }>;
  };
  const development = Object.keys(packages).filter((path) => packages[path]?.dev);
  assert.ok(development.length > 50);
  assert.deepEqual(
    [...development, 'node_modules/@chdb', 'node_modules/ffi-rs'].filter((path) =>
      existsSync(join(folder, path)),
    ),
    [],
  );
  const binaries = readdirSync(join(folder, 'node_modules/uWebSockets.js')).filter((name) =>
    name.endsWith('.node'),
  );
  assert.equal(existsSync(join(folder, `node_modules/@node-rs/argon2-linux-${process.arch}-gnu`)), true);
  assert.deepEqual(binaries, [`uws_linux_${process.arch}_${process.versions.modules}.node`]);
});

test('runs as a numeric user who is not root and may write nothing', () => {
  assert.match(image.user, /^[1-9]\d*:[1-9]\d*$/);
  if (process.getuid?.() !== 0) return;
  assert.equal(run(['id', '-u']).stdout.trim(), image.user.split(':')[0]);
  assert.equal(run(['sh', '-c', 'test ! -w . && test ! -w dist && test ! -w node_modules']).status, 0);
});

test('migrates, loads the state, accepts an event, stores it, and ends when it is asked to', async () => {
  const migrated = run(['node', 'dist/src/migrate.js']);
  assert.equal(migrated.status, 0, migrated.stderr);
  const loaded = run(['node', 'dist/src/admin/main.js', 'state', 'reload']);
  assert.equal(loaded.stdout, '{"state":"created"}\n', loaded.stderr);
  const account = run([
    'node',
    'dist/src/admin/main.js',
    'accounts',
    'create',
    'Shop',
    '--environment',
    'Main',
  ]);
  const [{ app_id }] = (JSON.parse(account.stdout) as { environments: [{ app_id: string }] }).environments;

  const ports = { PORT: String(await freePort()), ADMIN_PORT: String(await freePort()) };
  const api = await start('api', image.command, ports);
  await until(() => run(image.healthcheck, ports).status === 0, 'the image says that it is healthy');
  const worker = await start('worker', ['node', 'dist/workers/main.js'], {});

  const event = { app_id, event: 'From the image', identity: 'ada' };
  const reply = await track(`http://127.0.0.1:${ports.PORT}`, { body: event });
  assert.deepEqual([reply.status, reply.text], [200, '{}']);
  await until(
    async () =>
      (await clickhouse.query("SELECT count() FROM sluice.events WHERE event = 'From the image'")) === '1\n',
    'the event is stored',
  );

  assert.deepEqual(await api.sigterm(), { code: 0, signal: null }, api.output());
  assert.deepEqual(await worker.sigterm(), { code: 0, signal: null }, worker.output());
  assert.notEqual(run(image.healthcheck, ports).status, 0);
});

test('listens on all addresses, on the ports that it exposes', () => {
  assert.equal(image.env.HOST, '0.0.0.0');
  assert.deepEqual(image.ports, [8080, 8081]);
});
