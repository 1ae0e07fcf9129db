// `npm start` from outside: what it prints, what it survives, what it leaves behind.

import assert from 'node:assert/strict';
import { type ChildProcess, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { after, before, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { launch } from '../../deploy/local/launch.js';
import { isRunning, type ProcessIdentity } from '../../deploy/local/process-identity.js';
import { Redis } from '../../src/packages/ioredis.js';
import { operatorsToken } from '../harness/configured.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { inShell } from '../harness/shell.js';
import { tempDir } from '../harness/temp-dir.js';
import { until, within } from '../harness/wait.js';
import { withoutEngine } from '../harness/without-engine.js';
import { test } from '../support/test.js';
import { entriesBelow } from '../support/traces.js';

const startScript = fileURLToPath(new URL('../../../deploy/local/start.mjs', import.meta.url));
const supervisorScript = fileURLToPath(new URL('../../deploy/local/main.js', import.meta.url));
const scriptOf = (name: string) => fileURLToPath(new URL(`../../src/${name}.js`, import.meta.url));
const adminScript = scriptOf('admin/main');
const redisScript = scriptOf('admin/redis');
const clickHouseScript = scriptOf('admin/clickhouse');
const migrateScript = scriptOf('migrate');

type Start = {
  readonly process: ChildProcess;
  readonly exited: Promise<number | null>;
  output(): string;
};

const starts: Start[] = [];
after(async () => {
  for (const { process } of starts) process.kill('SIGKILL');
  await Promise.all(starts.map(({ exited }) => exited));
});

/** Runs `npm start` as a terminal does: leading a process group, to which Ctrl-C goes. */
function start(env: NodeJS.ProcessEnv, ...script: string[]): Start {
  const program = {
    command: process.execPath,
    args: script.length > 0 ? script : [supervisorScript],
    env: { ...plainEnvironment(), ...env },
  };
  const supervisor = launch(program, ['ignore', 'pipe', 'pipe'], 'KILL');
  let output = '';
  for (const stream of [supervisor.stdout, supervisor.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const exited = new Promise<number | null>((settle) => supervisor.on('close', (code) => settle(code)));
  const started = { process: supervisor, exited, output: () => output };
  starts.push(started);
  return started;
}

async function deployment(): Promise<NodeJS.ProcessEnv & { DATA_DIR: string }> {
  return {
    DATA_DIR: tempDir('start'),
    PORT: String(await freePort()),
    ADMIN_PORT: String(await freePort()),
    REDIS_PORT: String(await freePort()),
    CLICKHOUSE_PORT: String(await freePort()),
    CLICKHOUSE_TCP_PORT: String(await freePort()),
  };
}

async function untilUp(started: Start): Promise<void> {
  const up = () => started.output().includes('Read it back');
  const ended = () => started.process.exitCode !== null;
  await until(() => up() || ended(), { deadlineMs: 180_000, what: 'the start is up' }).catch((error) => {
    throw new Error(`it printed:\n${started.output()}`, { cause: error });
  });
  assert.ok(up(), started.output());
}

function ctrlC(started: Start): void {
  process.kill(-(started.process.pid as number), 'SIGINT');
}

/** Everything that the start of this DATA_DIR runs or ran. */
function children(env: { DATA_DIR: string }): ProcessIdentity[] {
  return (JSON.parse(readFileSync(join(env.DATA_DIR, 'lock'), 'utf8')) as { children: ProcessIdentity[] })
    .children;
}

function child(env: { DATA_DIR: string }, name: string): ProcessIdentity {
  const found = children(env).find((candidate) => candidate.name === name);
  assert.ok(found, `there is a child ${name}`);
  return found;
}

async function readyStatus(env: NodeJS.ProcessEnv): Promise<number> {
  const reply = await fetch(`http://127.0.0.1:${env.PORT}/health/ready`, {
    headers: { connection: 'close' },
  });
  await reply.arrayBuffer();
  return reply.status;
}

/** Asks the administrators' port. */
async function askAdmin(
  env: NodeJS.ProcessEnv,
  path: string,
  token = '',
): Promise<{ readonly status: number; readonly text: string }> {
  const reply = await fetch(`http://127.0.0.1:${env.ADMIN_PORT}${path}`, {
    headers: { connection: 'close', ...(token === '' ? {} : { authorization: `Bearer ${token}` }) },
  });
  return { status: reply.status, text: await reply.text() };
}

async function query(env: NodeJS.ProcessEnv & { DATA_DIR: string }, sql: string): Promise<string> {
  const password = readFileSync(join(env.DATA_DIR, 'clickhouse-reader-password'), 'utf8').trim();
  const reply = await fetch(`http://127.0.0.1:${env.CLICKHOUSE_PORT}/?database=sluice`, {
    method: 'POST',
    headers: { 'X-ClickHouse-User': 'reader', 'X-ClickHouse-Key': password },
    body: sql,
  });
  return reply.text();
}

/** A connection of the test to the embedded Redis. */
function redisOf(env: NodeJS.ProcessEnv & { DATA_DIR: string }): Redis {
  const password = readFileSync(join(env.DATA_DIR, 'redis-password'), 'utf8').trim();
  return new Redis(Number(env.REDIS_PORT), { password });
}

function admin(env: NodeJS.ProcessEnv, ...words: string[]) {
  return program(adminScript, env, ...words);
}

function program(script: string, env: NodeJS.ProcessEnv, ...words: string[]) {
  const options = { encoding: 'utf8', env: { ...plainEnvironment(), ...env } } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...words], options);
  return { status, output: `${stdout}${stderr}` };
}

/** Runs a command as another user of the machine; its status, and what it printed. */
function asOtherUser(command: string, ...args: string[]) {
  const user = ['--reuid', '65534', '--regid', '65534', '--clear-groups', '--no-new-privs'];
  const { status, stdout, stderr } = spawnSync('setpriv', [...user, command, ...args], { encoding: 'utf8' });
  return { status, output: `${stdout}${stderr}` };
}

/** The paths at and below a folder that are open to others. Links have no rights of their own. */
function openToOthers(dir: string): string[] {
  return [dir, ...entriesBelow(dir).map(({ path }) => path)].filter((path) => {
    const found = lstatSync(path, { throwIfNoEntry: false });
    return found !== undefined && !found.isSymbolicLink() && (found.mode & 0o077) !== 0;
  });
}

function filesIn(dir: string): string[] {
  return readdirSync(dir).map((name) => readFileSync(join(dir, name), 'utf8'));
}

function appIds(started: Start): string[] {
  return [...started.output().matchAll(/^ {2}app_id +(\S+)/gm)].map((match) => match[1] as string);
}

const isRoot = process.getuid?.() === 0;

describe('repeated starts on the same data', () => {
  let env: NodeJS.ProcessEnv & { DATA_DIR: string };
  let running: Start;
  let firstAppIds: string[];
  let firstToken: string;
  const tokenFile = () => join(env.DATA_DIR, 'admin-token');

  before(async () => {
    env = await deployment();
    // A folder that others may enter; the start makes DATA_DIR in it.
    chmodSync(env.DATA_DIR, 0o755);
    env.DATA_DIR = join(env.DATA_DIR, 'data');
    running = start(env, startScript);
    await untilUp(running);
    firstAppIds = appIds(running);
  });

  test('the first start prints both app_ids, the API key, and where everything listens', () => {
    const output = running.output();
    assert.equal(new Set(firstAppIds).size, 2);
    for (const appId of firstAppIds) assert.match(appId, /^\d+$/);
    const file = join(env.DATA_DIR, 'api-key');
    // The output goes to a pipe, which may be a log.
    assert.ok(output.includes(`  API key         cat ${file}  (keep it and remove the file)\n`), output);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const key = readFileSync(file, 'utf8').trim();
    assert.match(key, /^slk_[\w-]{43}$/);
    for (const text of [output, ...filesIn(join(env.DATA_DIR, 'log'))]) assert.ok(!text.includes(key));
    for (const variable of ['PORT', 'ADMIN_PORT', 'REDIS_PORT', 'CLICKHOUSE_PORT', 'CLICKHOUSE_TCP_PORT']) {
      assert.match(output, new RegExp(`^ {2}.*://127\\.0\\.0\\.1:${env[variable]}\\b`, 'm'));
    }
  });

  test('its Redis syncs every write before it is answered, and evicts nothing', async () => {
    const redis = redisOf(env);
    try {
      const names = ['appendonly', 'appendfsync', 'maxmemory-policy'] as const;
      const values = await Promise.all(names.map((name) => redis.config('GET', name)));
      assert.deepEqual(values, [
        ['appendonly', 'yes'],
        ['appendfsync', 'always'],
        ['maxmemory-policy', 'noeviction'],
      ]);
    } finally {
      redis.disconnect();
    }
  });

  test('its own processes reach its Redis by a private socket, and Redis also listens on its port', async () => {
    const socket = join(env.DATA_DIR, 'redis', 'redis.sock');
    assert.equal(statSync(socket).mode & 0o777, 0o700);
    const redis = redisOf(env);
    try {
      const bySocketAlone = async () => {
        const clients = String(await redis.client('LIST'))
          .trim()
          .split('\n');
        const bySocket = clients.filter((client) => client.includes('redis.sock:0 '));
        return bySocket.length >= 4 && bySocket.length === clients.length - 1;
      };
      // The supervisor asks on the port whether Redis is ready, and disconnects at once.
      await until(bySocketAlone, 'all but this one have come by the socket');
    } finally {
      redis.disconnect();
    }
  });

  test('the printed commands track an event and read it back', async () => {
    const output = running.output();
    const [track, readBack] = [
      /^ {2}(curl -s \S+ -H .*)$/m.exec(output),
      /^ {2}(curl -s -u .* -d "SELECT .*)$/m.exec(output),
    ];
    assert.ok(track?.[1] && readBack?.[1], output);
    assert.equal(await inShell(track[1]), '{}');
    const command = readBack[1];
    const rows = await until(async () => {
      const text = await inShell(command);
      return text.includes('ada@example.com') && text;
    }, 'the event is in ClickHouse');
    assert.match(rows, /order_completed/);
  });

  test('commands find its ports by DATA_DIR, and name the variable where nothing answers', async () => {
    const { DATA_DIR } = env;
    for (const words of [
      ['failed', 'list'],
      ['keys-index', 'status'],
    ]) {
      const { status, output } = admin({ DATA_DIR }, ...words);
      assert.equal(status, 0, output);
    }
    assert.deepEqual(program(redisScript, { DATA_DIR }, 'ping'), { status: 0, output: 'PONG\n' });
    assert.deepEqual(program(clickHouseScript, { DATA_DIR }, 'SELECT 1'), { status: 0, output: '1\n' });
    assert.deepEqual(program(clickHouseScript, { DATA_DIR }, '--server', '7', 'SELECT 1'), {
      status: 1,
      output: '--server: the servers of CLICKHOUSE_URL are 0 to 0\n',
    });
    assert.equal(program(migrateScript, { DATA_DIR }).status, 0);
    const free = String(await freePort());
    const { status, output } = admin({ DATA_DIR, CLICKHOUSE_PORT: free }, 'failed', 'list');
    const line = `^CLICKHOUSE_PORT: no ClickHouse answers on 127\\.0\\.0\\.1:${free} \\(ECONNREFUSED\\): [^\n]+\n$`;
    assert.equal(status, 1);
    assert.match(output, new RegExp(line));
  });

  test('a command with a copy of its DATA_DIR does nothing to it', () => {
    const copy = tempDir('copy');
    for (const name of ['lock', 'redis-password', 'clickhouse-password'])
      copyFileSync(join(env.DATA_DIR, name), join(copy, name));
    for (const [script, variable, ...words] of [
      [adminScript, 'REDIS_PORT: the Redis', 'accounts', 'list'],
      [redisScript, 'REDIS_PORT: the Redis', 'ping'],
      [clickHouseScript, 'CLICKHOUSE_PORT: the ClickHouse', 'SELECT 1'],
      [migrateScript, 'CLICKHOUSE_PORT: the ClickHouse'],
    ] as const) {
      const { status, output } = program(script, { DATA_DIR: copy }, ...words);
      assert.equal(status, 1, output);
      assert.match(
        output,
        new RegExp(`^[a-z: ]*${variable} there belongs to DATA_DIR \\S+, not to \\S+: [^\n]+\n$`),
      );
    }
  });

  test('another user of the machine reads nothing of it from files', { skip: !isRoot }, () => {
    const control = join(env.DATA_DIR, '..', 'for-all');
    writeFileSync(control, 'for all');
    chmodSync(control, 0o644);
    assert.deepEqual(asOtherUser('cat', control), { status: 0, output: 'for all' });
    const found = asOtherUser('grep', '-r', 'ada@example.com', env.DATA_DIR);
    assert.equal(found.status, 2);
    assert.match(found.output, /^grep: \S+: Permission denied\n$/);
    const socket = join(env.DATA_DIR, 'redis', 'redis.sock');
    assert.match(asOtherUser('redis-cli', '-s', socket, 'PING').output, /Permission denied/);
  });

  test('no file or folder in DATA_DIR is open to other users, whichever process made it', () => {
    for (const made of ['redis/appendonlydir', 'clickhouse/store', 'log/api.log', 'lock']) {
      assert.ok(existsSync(join(env.DATA_DIR, made)), made);
    }
    assert.deepEqual(openToOthers(env.DATA_DIR), []);
  });

  test('nobody without a password reads anything from the ports', async () => {
    const stranger = new Redis(Number(env.REDIS_PORT), { enableReadyCheck: false });
    stranger.on('error', () => {
      // The connection's greeting is refused too; the commands below show that.
    });
    try {
      for (const command of ['KEYS *', 'GET {registry}:epoch', 'MONITOR', 'CONFIG GET requirepass']) {
        const [name = '', ...args] = command.split(' ');
        await assert.rejects(stranger.call(name, ...args), /NOAUTH/, command);
      }
    } finally {
      stranger.disconnect();
    }
    const reply = await fetch(`http://127.0.0.1:${env.CLICKHOUSE_PORT}/?query=SELECT+1+FROM+sluice.events`);
    assert.ok(reply.status >= 400, await reply.text());
  });

  test('says how to read the data by hand, and prints no password', () => {
    const output = running.output();
    for (const name of ['redis-password', 'clickhouse-password', 'clickhouse-reader-password']) {
      const file = join(env.DATA_DIR, name);
      assert.equal(statSync(file).mode & 0o777, 0o600);
      assert.ok(!output.includes(readFileSync(file, 'utf8').trim()));
    }
    assert.ok(
      output.includes(`user reader, password: cat ${join(env.DATA_DIR, 'clickhouse-reader-password')}\n`),
    );
    assert.ok(output.includes(`tcp://127.0.0.1:${env.CLICKHOUSE_TCP_PORT} (native protocol)\n`));
  });

  test('makes an ADMIN_TOKEN that only its owner can read, says where it is, and has the pages on', async () => {
    firstToken = readFileSync(tokenFile(), 'utf8').trim();
    assert.match(firstToken, /^[\w-]{32}$/);
    assert.equal(statSync(tokenFile()).mode & 0o777, 0o600);
    const output = running.output();
    assert.ok(!output.includes(firstToken), 'the token itself is not printed');
    assert.ok(output.includes(`ADMIN_TOKEN     cat ${tokenFile()}\n`), output);
    for (const path of ['/demo', '/visualizer']) {
      assert.ok(output.includes(`http://127.0.0.1:${env.ADMIN_PORT}${path}\n`), path);
      assert.equal((await askAdmin(env, path)).status, 200);
    }
    assert.equal((await askAdmin(env, '/admin/v1/accounts', firstToken)).status, 200);
    assert.equal((await askAdmin(env, '/admin/v1/accounts', 'wrong')).status, 401);
  });

  test('a second start on the same DATA_DIR names it and ends with code 1', async () => {
    const second = start({ ...(await deployment()), DATA_DIR: env.DATA_DIR });
    assert.equal(await within(second.exited, 60_000), 1);
    assert.match(second.output(), /^sluice: DATA_DIR \S+ is used by a running start \(pid \d+\)\n$/);
    assert.equal(await readyStatus(env), 200);
  });

  test('a start on the port of a running API names PORT and ends with code 1', async () => {
    const other = await deployment();
    const second = start({ ...other, PORT: env.PORT });
    assert.equal(await within(second.exited, 60_000), 1);
    assert.match(second.output(), new RegExp(`^sluice: PORT ${env.PORT} is taken: .*\\n$`));
  });

  for (const name of ['api', 'worker', 'redis', 'clickhouse']) {
    test(`${name} is started again when it was killed`, async () => {
      const victim = child(env, name);
      process.kill(victim.pid, 'SIGKILL');
      await until(() => child(env, name).pid !== victim.pid, `${name} is another process`);
      await until(
        () => running.output().includes(`${name} runs again (pid ${child(env, name).pid})`),
        `${name} is healthy again`,
      );
      assert.match(
        running.output(),
        new RegExp(`^sluice: ${name} was ended by SIGKILL, starting it again`, 'm'),
      );
      await until(async () => (await readyStatus(env)) === 200, 'the API is ready');
    });
  }

  test('Ctrl-C stops everything, the API first, and ends with code 0', async () => {
    const before = children(env);
    ctrlC(running);
    assert.equal(await within(running.exited, 60_000), 0, running.output());
    assert.match(running.output(), /sluice: stopped\n$/);
    assert.doesNotMatch(running.output(), /did not stop in time/);
    assert.deepEqual(before.filter(isRunning), []);
  });

  test('the next start closes what is open to others, and takes changed passwords whatever their characters', async () => {
    for (const name of ['redis', 'clickhouse', 'clickhouse-reader'])
      writeFileSync(join(env.DATA_DIR, `${name}-password`), `${name} /+=@:?#%41"'\\<&\n`);
    // Opens everything as far as the usual umask would.
    const open = spawnSync('chmod', ['-R', 'u=rwX,go=rX', env.DATA_DIR]);
    assert.equal(open.status, 0);
    assert.ok(openToOthers(env.DATA_DIR).length > 50);
    running = start(env);
    await untilUp(running);
    assert.deepEqual(openToOthers(env.DATA_DIR), []);
  });

  test('that start finds the accounts and the events, and shows no API key', async () => {
    assert.deepEqual(appIds(running), firstAppIds);
    assert.doesNotMatch(running.output(), /^ {2}API key/m);
    assert.equal((await askAdmin(env, '/admin/v1/accounts', firstToken)).status, 200);
    assert.equal(
      (await query(env, "SELECT count() FROM events WHERE identity = 'ada@example.com'")).trim(),
      '1',
    );
  });

  test('kill -9 of the supervisor leaves no child behind, and the next start works', async () => {
    const before = children(env);
    running.process.kill('SIGKILL');
    await running.exited;
    await until(() => before.every((identity) => !isRunning(identity)), 'all children have ended');
    running = start(env);
    await untilUp(running);
    assert.deepEqual(appIds(running), firstAppIds);
  });

  test('a second Ctrl-C does not wait for a child that hangs', async () => {
    process.kill(child(env, 'worker').pid, 'SIGSTOP');
    const before = children(env);
    ctrlC(running);
    await until(() => !isRunning(child(env, 'api')), 'the API has ended');
    for (const name of ['worker', 'clickhouse', 'redis']) assert.ok(isRunning(child(env, name)), name);
    ctrlC(running);
    assert.equal(await within(running.exited, 60_000), 0, running.output());
    assert.deepEqual(before.filter(isRunning), []);
  });
});

test('a start waits for one on the same DATA_DIR that is stopping', async () => {
  const env = await deployment();
  const first = start(env);
  await untilUp(first);
  process.kill(child(env, 'worker').pid, 'SIGSTOP');
  ctrlC(first);
  await until(() => first.output().includes('SIGINT: stopping'), 'it stops');
  const second = start(env);
  await until(() => second.output().includes('waiting for'), 'it waits');
  assert.match(
    second.output(),
    /^sluice: waiting for processes that an earlier start left running: .*worker \(pid \d+\)/,
  );
  ctrlC(first);
  await untilUp(second);
  assert.equal(await first.exited, 0);
  ctrlC(second);
  assert.equal(await within(second.exited, 60_000), 0, second.output());
});

test('everything stops when npm, or its shell, is killed', async () => {
  const env = await deployment();
  const main = JSON.stringify(supervisorScript);
  // Like npm, this is a shell that starts the program and waits for it.
  const code = `require('node:child_process').spawn(process.execPath, [${main}], { stdio: 'inherit' })`;
  const shell = start({ ...env, npm_lifecycle_event: 'start' }, '-e', code);
  await untilUp(shell);
  const before = children(env);
  shell.process.kill('SIGKILL');
  await until(() => !before.some(isRunning), 'all children have ended');
  await until(() => shell.output().endsWith('sluice: stopped\n'), 'it has ended');
});

test('two API processes and two workers share the ports of one deployment, and there may be no worker', async () => {
  const env = await deployment();
  const given = { ADMIN_TOKEN: operatorsToken, DEMO: '0' };
  const running = start({ ...env, ...given, API_PROCESSES: '2', WORKER_PROCESSES: '2' });
  await untilUp(running);
  // Values from the environment have priority.
  assert.equal((await askAdmin(env, '/admin/v1/accounts', operatorsToken)).status, 200);
  assert.ok(!existsSync(join(env.DATA_DIR, 'admin-token')));
  assert.equal((await askAdmin(env, '/demo')).status, 404);
  assert.doesNotMatch(running.output(), /\/demo/);
  const names = children(env)
    .filter(isRunning)
    .map(({ name }) => name);
  assert.deepEqual(names, ['redis', 'clickhouse', 'worker-1', 'worker-2', 'api-1', 'api-2']);
  ctrlC(running);
  assert.equal(await within(running.exited, 60_000), 0, running.output());

  const withoutWorkers = start({ ...env, ...given, WORKER_PROCESSES: '0' });
  await untilUp(withoutWorkers);
  const left = children(env).filter(isRunning);
  assert.deepEqual(
    left.map(({ name }) => name),
    ['redis', 'clickhouse', 'api'],
  );
  ctrlC(withoutWorkers);
  assert.equal(await within(withoutWorkers.exited, 60_000), 0, withoutWorkers.output());
});

function pathWithout(program: string): string {
  const folder = tempDir('path');
  for (const from of (process.env.PATH ?? '').split(delimiter).filter(existsSync)) {
    for (const name of readdirSync(from)) {
      const link = join(folder, name);
      // A link that leads nowhere is there too.
      if (name !== program && lstatSync(link, { throwIfNoEntry: false }) === undefined)
        symlinkSync(join(from, name), link);
    }
  }
  return folder;
}

test('children of a killed start that are still there are ended by the next start', async () => {
  const env = await deployment();
  // Without setpriv the kernel does not end Redis together with the supervisor.
  const bin = pathWithout('setpriv');
  const first = start({ ...env, PATH: bin, HOST: '0.0.0.0' });
  await untilUp(first);
  // Other machines do not reach the administration. There is no demo where other machines reach the API.
  await assert.rejects(fetch(`http://127.0.0.2:${env.ADMIN_PORT}/metrics`), 'the administration');
  assert.equal((await fetch(`http://127.0.0.2:${env.PORT}/health/ready`)).status, 200);
  assert.equal((await askAdmin(env, '/demo')).status, 404);
  const redis = child(env, 'redis');
  first.process.kill('SIGKILL');
  await first.exited;
  assert.ok(isRunning(redis));

  const second = start({ ...env, PATH: bin });
  await untilUp(second);
  assert.match(
    second.output(),
    /^sluice: waiting for processes that an earlier start left running: .*redis \(pid \d+\)/m,
  );
  assert.ok(!isRunning(redis));
  assert.deepEqual(appIds(second), appIds(first));
  ctrlC(second);
  assert.equal(await within(second.exited, 60_000), 0, second.output());
});

describe('a start that cannot work says why in one line and ends with code 1', () => {
  async function assertRefused(env: NodeJS.ProcessEnv, line: RegExp): Promise<void> {
    const refused = start(env);
    assert.equal(await within(refused.exited, 60_000), 1);
    assert.match(refused.output(), line);
    assert.equal(refused.output().trim().split('\n').length, 1);
  }

  for (const variable of ['PORT', 'ADMIN_PORT', 'REDIS_PORT', 'CLICKHOUSE_PORT']) {
    test(`${variable} is taken`, async () => {
      const env = await deployment();
      const server = createServer().listen(Number(env[variable]), '127.0.0.1');
      await once(server, 'listening');
      try {
        await assertRefused(env, new RegExp(`^sluice: ${variable} ${env[variable]} is taken`));
      } finally {
        server.close();
      }
    });
  }

  test('there is no embedded ClickHouse for this machine', async () => {
    const env = { ...(await deployment()), NODE_OPTIONS: withoutEngine };
    await assertRefused(
      env,
      /^sluice: the embedded ClickHouse is not there .*: set CLICKHOUSE_URL to a server\n$/,
    );
    assert.ok(!existsSync(join(env.DATA_DIR, 'lock')));
  });

  test('two ports are the same', async () => {
    const env = await deployment();
    await assertRefused({ ...env, ADMIN_PORT: env.PORT }, /^sluice: ADMIN_PORT and PORT are both \d+/);
  });

  test('a value is bad', async () => {
    const env = await deployment();
    await assertRefused({ ...env, API_PROCESSES: 'many' }, /^sluice: API_PROCESSES must be a whole number/);
  });

  test('DATA_DIR is a file', async () => {
    const env = await deployment();
    const file = join(env.DATA_DIR, 'file');
    writeFileSync(file, '');
    await assertRefused({ ...env, DATA_DIR: file }, /^sluice: DATA_DIR \S+ cannot be written/);
  });

  test('DATA_DIR is a folder that users share', async () => {
    const env = await deployment();
    chmodSync(env.DATA_DIR, 0o1777);
    await assertRefused(
      env,
      /^sluice: DATA_DIR \S+ is shared with other users: give Sluice a folder of its own\n$/,
    );
    assert.equal(statSync(env.DATA_DIR).mode & 0o7777, 0o1777);
  });

  test('nobody answers at REDIS_URL', async () => {
    const env = await deployment();
    const nobody = await freePort();
    await assertRefused(
      { ...env, REDIS_URL: `redis://:secret@127.0.0.1:${nobody}` },
      /^sluice: REDIS_URL: no Redis answers there \(ECONNREFUSED\)\n$/,
    );
  });
});
