// The spool of the library for servers: what it keeps and in what order it is sent, also when the disk is full, when its
// files have changed, and when several processes want its folder.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import type { Dropped, Problem, Sluice } from '../../src/libraries/producer/index.js';
import {
  claimFolder,
  findClaims,
  releaseFolder,
  takeFolder,
} from '../../src/libraries/producer/spool-folder.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import type { AnsweringServer } from '../support/answering-server.js';
import { type ProducerWorld, startProducerWorld, track } from '../support/producer-world.js';

let world: ProducerWorld;
let server: AnsweringServer;
let problems: Problem[];
let dropped: Dropped[];
let create: ProducerWorld['create'];
let spoolFolder: string;

beforeEach(async () => {
  world = await startProducerWorld();
  ({ server, problems, dropped, create } = world);
  spoolFolder = tempDir('spool');
});
afterEach(() => {
  limitFiles('unlimited');
  server.close();
});

const deadlineMs = 60_000;
const numbers = () => world.numbers();
const upTo = (count: number) => Array.from({ length: count }, (_, n) => n);
const line = (n: number) =>
  `t{"event":"E","identity":"u","properties":{"n":${n}},"idempotency_key":"k${n}"}\n`;
const put = (name: string, text: string) => writeFileSync(join(spoolFolder, name), text);

function lines(): { n: number }[] {
  const names = readdirSync(spoolFolder).filter((name) => name.endsWith('.records'));
  const texts = names.sort().map((name) => readFileSync(join(spoolFolder, name), 'utf8'));
  return texts.flatMap((text) =>
    text
      .split('\n')
      .slice(0, -1)
      .map((one) => JSON.parse(one.slice(1)).properties),
  );
}

test('a spool holds what does not fit into memory, in the order of the calls', async () => {
  let release: () => void = () => undefined;
  const released = new Promise<void>((settle) => {
    release = settle;
  });
  server.answer = async () => {
    await released;
    return { status: 200 };
  };
  const client = create({
    spoolFolder,
    queueRecords: 50,
    batchRecords: 20,
    parallelRequests: 1,
  });
  for (let n = 0; n < 300; n++) await track(client, n, 'u');
  assert.ok(client.waitingRecords <= 50);
  release();
  // These come while memory has room again and the files hold earlier ones.
  for (let n = 300; n < 600; n++) await track(client, n, 'u');
  assert.equal(await client.close(), true);
  assert.deepEqual(numbers().flat(), upTo(600));
});

test('a spool keeps what was left at a deadline, and the next client sends it before its own records', async () => {
  server.answer = () => new Promise(() => undefined);
  const first = create({ spoolFolder });
  for (let n = 0; n < 5; n++) await track(first, n, 'u');
  assert.equal(await first.close(20), false);
  server = await world.replaceServer();
  const second = create({ spoolFolder });
  for (let n = 5; n < 10; n++) await track(second, n, 'u');
  assert.equal(await second.close(), true);
  assert.deepEqual(numbers().flat(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual(readdirSync(spoolFolder), []);
});

test('a record in a synced spool has its line and the name of its file on disk', async (t) => {
  const handle = await open(spoolFolder);
  const prototype = Object.getPrototypeOf(handle) as typeof handle;
  await handle.close();
  const synced: string[] = [];
  for (const name of ['sync', 'datasync'] as const) {
    const real = prototype[name];
    t.mock.method(prototype, name, async function (this: typeof handle) {
      await real.call(this);
      synced.push(readlinkSync(`/proc/self/fd/${this.fd}`));
    });
  }
  server.answer = () => new Promise(() => undefined);
  const client = create({ spoolFolder, spoolSync: true });
  await track(client, 0, 'u');
  const first = synced.splice(0);
  await track(client, 1, 'u');
  assert.equal(await client.close(20), false);
  const file = join(spoolFolder, '000000000001.records');
  assert.deepEqual([first, synced], [[spoolFolder, dirname(spoolFolder), file], [file]]);
});

test('a spool sends neither incomplete nor settled lines', async () => {
  put('000000000001.records', [0, 1, 2, 3, 4].map(line).join('') + line(5).slice(0, 30));
  // The last mark was not written to its end: it has no dot.
  put('000000000001.settled', '\n0 2.\n3 1');
  put('000000000003.records', `${line(6)}damaged\n${line(7)}`);
  const client = create({ spoolFolder });
  await track(client, 8, 'u');
  assert.equal(await client.close(), true);
  assert.deepEqual(numbers().flat(), [2, 3, 4, 6, 7, 8]);
  assert.deepEqual(
    problems.map(({ code }) => code),
    ['spool'],
  );
});

test('a spool keeps a file until all lines that it has are settled, even if its marks name more', async () => {
  put('000000000001.records', line(0) + line(1));
  put('000000000001.settled', '\n1 5.');
  server.answer = () => new Promise(() => undefined);
  const first = create({ spoolFolder });
  await until(() => server.arrived.length > 0, 'it is sent');
  assert.equal(await first.close(20), false);
  server = await world.replaceServer();
  assert.equal(await create({ spoolFolder }).close(), true);
  assert.deepEqual(numbers().flat(), [0]);
});

test('a spool is bounded: callers that await wait for room', async () => {
  let isOpen = false;
  server.answer = () => ({ status: isOpen ? 200 : 503 });
  const client = create({ spoolFolder, queueRecords: 10, spoolBytes: 8 * 1024 * 1024 });
  const text = 'x'.repeat(900_000);
  let called = 0;
  const calls = (async () => {
    for (; called < 20; called++)
      await client.track({ event: 'E', identity: 'u', properties: { n: called, text } });
  })();
  await until(() => problems.length > 0 && called >= 9, { deadlineMs, what: 'it is full' });
  assert.ok(called < 12, `${called} calls`);
  isOpen = true;
  await calls;
  assert.equal(await client.close(), true);
  assert.equal(new Set(numbers().flat()).size, 20);
  assert.deepEqual(dropped, []);
});

test('a spool lets callers continue when it has written their records, although the service is away', async () => {
  server.answer = () => ({ status: 503 });
  const client = create({ spoolFolder });
  // More bytes than may wait to be written.
  const calls = upTo(70).map((n) => track(client, n, 'u', 'x'.repeat(1_000_000)));
  await calls.at(-1);
  assert.equal(await client.close(0), false);
  assert.deepEqual(dropped, []);
});

describe('a disk that takes no more', () => {
  for (const cutFails of [false, true]) {
    const how = cutFails ? ', also if that part cannot be cut off at first' : '';
    test(`doubles and breaks nothing, since a write that was taken in part is repeated${how}`, async () => {
      server.answer = () => ({ status: 503 });
      const client = create({ spoolFolder, queueRecords: 5 });
      await Promise.all(upTo(10).map((n) => trackLarge(client, n)));
      const cut = cutFails ? await failToCut() : undefined;
      limitFiles(diskBytes);
      const calls = upTo(90).map((n) => trackLarge(client, n + 10));
      await until(() => problems.some(({ code }) => code === 'EFBIG'), {
        deadlineMs,
        what: 'the disk is full',
      });
      limitFiles('unlimited');
      await cut?.untilTried();
      cut?.end();
      await Promise.all(calls);
      assert.equal(await client.close(0), false);
      assert.deepEqual(
        lines().map(({ n }) => n),
        upTo(100),
      );
      server = await world.replaceServer();
      const next = create({ spoolFolder });
      await next.flush();
      assert.equal(await next.close(), true);
      assert.deepEqual(numbers().flat(), upTo(100));
      assert.deepEqual(dropped, []);
    });
  }

  test('does not hold up what the service accepts, and settled files make room', async () => {
    limitFiles(diskBytes);
    const client = create({ spoolFolder, queueRecords: 20, batchRecords: 10 });
    await Promise.all(upTo(100).map((n) => trackLarge(client, n)));
    for (let n = 100; n < 160; n += 20) {
      await Promise.all(upTo(20).map((more) => trackLarge(client, n + more)));
    }
    await client.flush();
    assert.deepEqual(numbers().flat(), upTo(160));
    // The last file is nearly full of settled records.
    server.answer = () => ({ status: 503 });
    await Promise.all(upTo(20).map((more) => trackLarge(client, 160 + more)));
    await client.close(0);
    assert.deepEqual(
      lines().flatMap(({ n }) => (n < 160 ? [] : [n - 160])),
      upTo(20),
    );
    assert.deepEqual([problems.map(({ code }) => code)[0], dropped], ['EFBIG', []]);
  });

  test('loses records that are neither on disk nor accepted when the library is closed, and reports how many', async () => {
    server.answer = () => ({ status: 503 });
    const client = create({ spoolFolder });
    limitFiles(diskBytes);
    const calls = upTo(5).map((n) => track(client, n, 'u', 'x'.repeat(900_000)));
    await until(() => problems.some(({ code }) => code === 'EFBIG'), {
      deadlineMs,
      what: 'the disk is full',
    });
    assert.equal(await client.close(0), false);
    await Promise.all(calls);
    assert.deepEqual(dropped, [{ count: 5, reason: 'deadline' }]);
  });
});

describe('files that have changed meanwhile', () => {
  test('hold up later records while they cannot be read, and are reported when they are gone', async () => {
    mkdirSync(join(spoolFolder, '000000000001.records'));
    put('000000000002.records', line(0) + line(1));
    const client = create({ spoolFolder });
    const countProblems = (words: RegExp) => problems.filter(({ message }) => words.test(message)).length;
    await until(() => countProblems(/cannot be read: EISDIR/) > 0, { deadlineMs, what: 'it cannot be read' });
    await track(client, 2, 'u');
    assert.deepEqual(numbers(), []);
    rmdirSync(join(spoolFolder, '000000000001.records'));
    await client.flush();
    assert.equal(await client.close(), true);
    assert.deepEqual(numbers().flat(), [0, 1, 2]);
    assert.deepEqual([countProblems(/cannot be read/), countProblems(/file 1 is gone/)], [1, 1]);
    assert.deepEqual(readdirSync(spoolFolder), []);
  });

  test('keep the lines of a newer version', async () => {
    put('000000000001.records', `${line(0)}x{"identity":"u"}\n${line(1)}`);
    for (const [n, came] of [
      [2, [0, 1, 2]],
      [3, [3]],
    ] as const) {
      const client = create({ spoolFolder });
      await track(client, n, 'u');
      await client.flush();
      assert.equal(await client.close(), false, 'something is left');
      assert.deepEqual(numbers().flat(), came);
      assert.match(
        problems.at(-1)?.message ?? '',
        /1 lines of file 1 are of a newer version, and stay there/,
      );
      server.arrived.length = 0;
    }
    assert.deepEqual(readdirSync(spoolFolder), ['000000000001.records', '000000000001.settled']);
  });

  test('are not settled by the marks of earlier files with the same number', async () => {
    put('000000000001.settled', '\n0 9.');
    server.answer = () => ({ status: 503 });
    const first = create({ spoolFolder });
    for (let n = 0; n < 3; n++) await track(first, n, 'u');
    await first.close(0);
    server = await world.replaceServer();
    const second = create({ spoolFolder });
    await second.flush();
    await second.close();
    assert.deepEqual(numbers().flat(), [0, 1, 2]);
  });
});

describe('the folder of a spool', () => {
  afterEach(() => releaseFolder(spoolFolder));

  /** Claims the folder as a process would. */
  function owner(pid: number, startedLater = 0): string {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const started = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]) + startedLater;
    return `${pid} ${started} ${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8')}`;
  }

  test('is refused while its owner lives, and taken over when the owner is gone', async () => {
    put('owner.3', owner(1));
    assert.throws(() => create({ spoolFolder }), /in use by process 1/);
    // The same process id now belongs to another process.
    put('owner.3', owner(1, 1));
    const client = create({ spoolFolder });
    assert.deepEqual(readdirSync(spoolFolder), ['owner.4']);
    await client.close();
    assert.deepEqual(readdirSync(spoolFolder), []);
  });

  test('has one owner when two processes find at once that the last one is gone', () => {
    put('owner.4', owner(1, 1));
    const found = findClaims(spoolFolder);
    takeFolder(spoolFolder, found);
    assert.throws(() => takeFolder(spoolFolder, found), /in use by a process that came at the same time/);
    assert.deepEqual(readdirSync(spoolFolder), ['owner.5']);
  });

  test('is not taken by a process that looked before another one claimed it', () => {
    const found = findClaims(spoolFolder);
    put('owner.2', owner(1));
    assert.throws(() => takeFolder(spoolFolder, found), /in use by process 1/);
    assert.deepEqual(readdirSync(spoolFolder), ['owner.2']);
  });

  test('is refused to another copy of the library in the same process', async () => {
    claimFolder(spoolFolder);
    const copy = new URL('../../src/libraries/producer/spool-folder.js?copy', import.meta.url).href;
    const { claimFolder: claimByCopy } = (await import(copy)) as { claimFolder: typeof claimFolder };
    assert.throws(() => claimByCopy(spoolFolder), /in use by process/);
  });

  test('is free when its owner was killed, even if it is still a zombie', async () => {
    const parent = spawn('sh', ['-c', 'sleep 600 & echo $!; exec sleep 600'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      const [printed] = await once(parent.stdout, 'data');
      const pid = Number(String(printed));
      // A shell might reap its child. The program that the shell becomes does not.
      await until(() => readFileSync(`/proc/${parent.pid}/comm`, 'utf8') === 'sleep\n', {
        deadlineMs,
        what: 'the shell has become another program',
      });
      process.kill(pid);
      await until(() => / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')), {
        deadlineMs,
        what: 'the owner is a zombie',
      });
      put('owner.1', owner(pid));
      claimFolder(spoolFolder);
    } finally {
      parent.kill();
    }
    await once(parent, 'exit');
  });

  test('is refused while a claim cannot be read', () => {
    mkdirSync(join(spoolFolder, 'owner.3'));
    assert.throws(() => claimFolder(spoolFolder), /EISDIR/);
    assert.deepEqual(readdirSync(spoolFolder), ['owner.3']);
  });

  test('is free when its owner was killed while it claimed it', () => {
    put('owner.1', owner(1).slice(0, 5));
    claimFolder(spoolFolder);
    assert.deepEqual(readdirSync(spoolFolder), ['owner.2']);
  });
});

/** Tracks a record of 32 kB; 32 of them fill the disk. */
function trackLarge(client: Sluice, n: number): Promise<void> {
  return track(client, n, 'u', 'x'.repeat(32_000));
}

/** The size of the disk: far more than the test's own report takes. */
const diskBytes = 1024 * 1024;

/** Limits the size of this process's files to that, since a full disk would need a disk of its own. */
function limitFiles(bytes: number | 'unlimited'): void {
  const { status } = spawnSync('prlimit', ['--pid', String(process.pid), `--fsize=${bytes}:`]);
  assert.equal(status, 0, 'prlimit');
}

/** Makes it fail to cut files, as on a broken disk. */
async function failToCut(): Promise<{ untilTried(): Promise<void>; end(): void }> {
  const handle = await open(join(spoolFolder, 'any'), 'w');
  await handle.close();
  rmSync(join(spoolFolder, 'any'));
  const methods = Object.getPrototypeOf(handle) as { truncate: () => Promise<void> };
  const { truncate } = methods;
  let tries = 0;
  methods.truncate = () => {
    tries++;
    return Promise.reject(Object.assign(new Error('of the test'), { code: 'EIO' }));
  };
  return {
    untilTried: async () => {
      const before = tries;
      await until(() => tries > before, { deadlineMs, what: 'it was tried again' });
    },
    end: () => {
      methods.truncate = truncate;
    },
  };
}
