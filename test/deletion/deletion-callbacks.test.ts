// Callbacks for complete deletions: which addresses they may go to, what they carry, and that none is lost.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { readConfig } from '../../src/config.js';
import { ConfigError } from '../../src/config-values.js';
import { StateNotLoaded } from '../../src/contract/errors.js';
import { callbacks } from '../../src/contract/limits.js';
import { createAddressCheck } from '../../src/privacy/deletion/callback-addresses.js';
import { call } from '../../src/privacy/deletion/callback-call.js';
import { createResolve } from '../../src/privacy/deletion/callback-names.js';
import { tryCallback } from '../../src/privacy/deletion/callbacks.js';
import type { DeletionRequest } from '../../src/privacy/deletion/request.js';
import type { Redis } from '../../src/redis/client.js';
import { registryKeys } from '../../src/redis/keys.js';
import { callbackJobs } from '../../src/tuning.js';
import { callbackPauseMs, createWaitingLine } from '../../workers/callback-queue.js';
import { runDeletionRound } from '../../workers/delete.js';
import { createTestAccount, restoreState, type TestAccount } from '../harness/accounts.js';
import { administer, deleteNow, getToken, readStatus, showDeletion, submitNow } from '../harness/deletion.js';
import { assertDocumentedCall } from '../harness/documented-answers.js';
import { freePort } from '../harness/free-port.js';
import { listen } from '../harness/listen.js';
import { withRedis } from '../harness/redis-client.js';
import { type Child, type SluiceHandle, startSluice } from '../harness/services.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { roundOptions } from '../support/deletion-world.js';
import { startDnsServer } from '../support/dns-server.js';

type Received = { readonly request: IncomingMessage; readonly body: string };

/** Stops the servers that failed tests have left open. */
const open: (() => void)[] = [];

after(() => {
  for (const stop of open) stop();
});

/** A server on the loopback that keeps what it receives; `answer` writes its replies. */
async function startReceiver(answer: (reply: ServerResponse, count: number) => void) {
  const received: Received[] = [];
  let atOnce = 0;
  let atOnceMost = 0;
  const server: Server = createServer((request, reply) => {
    let body = '';
    atOnce += 1;
    atOnceMost = Math.max(atOnceMost, atOnce);
    reply.once('close', () => {
      atOnce -= 1;
    });
    request.on('data', (piece: Buffer) => {
      body += String(piece);
    });
    request.on('end', () => {
      received.push({ request, body });
      answer(reply, received.length);
    });
  });
  const { port, stop } = await listen(server);
  open.push(stop);
  return { received, port, stop, atOnceMost: () => atOnceMost };
}

const answerWith = (status: number) => (reply: ServerResponse) => {
  reply.statusCode = status;
  reply.end('taken');
};

describe('a call', () => {
  const public4 = [
    '1.1.1.1',
    '8.8.8.8',
    '100.63.255.255',
    '100.128.0.0',
    '172.15.255.255',
    '172.32.0.0',
    '223.255.255.255',
  ];
  const public6 = ['2606:4700:4700::1111', '2a00:1450:4001:800::200e'];
  const special = [
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '127.0.0.1',
    '127.255.255.254',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '198.18.0.1',
    '224.0.0.1',
    '239.255.255.255',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:127.0.0.1',
    '::ffff:8.8.8.8',
    '::127.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b:1::a00:1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2002:7f00:1::',
    'fc00::1',
    'fd12:3456::1',
    'fe80::1',
    'fe80::1%lo',
    'ff02::1',
    'localhost',
    '',
  ];

  test('goes to public addresses only', () => {
    const isAllowed = createAddressCheck([]);
    for (const address of [...public4, ...public6])
      assert.equal(isAllowed('a.example', address), true, address);
    for (const address of special) assert.equal(isAllowed('a.example', address), false, address);
  });

  test('goes to this machine only if that is allowed, also by its public addresses, which may change', () => {
    let own = ['127.0.0.1', '93.184.215.14', 'fe80::1', '2606:2800:21f:cb07:6820:80da:af6b:8b2c'];
    const isAllowed = createAddressCheck([], () => own);
    const allowing = createAddressCheck(['93.184.215.14', 'hooks.example'], () => own);
    for (const address of own) {
      assert.equal(isAllowed('hooks.example', address), false, address);
      assert.equal(allowing('hooks.example', address), !address.startsWith('fe80'), address);
    }
    assert.equal(allowing('a.example', '93.184.215.14'), true);
    assert.equal(isAllowed('a.example', '93.184.215.15'), true);
    own = [];
    assert.equal(isAllowed('a.example', '93.184.215.14'), true);
    const here = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
    assert.ok(here.length > 0);
    for (const { address } of here)
      assert.equal(createAddressCheck([])('a.example', address), false, address);
  });

  test('also goes to the networks and hosts that are allowed, and to no others', () => {
    const isAllowed = createAddressCheck(['10.0.0.0/8', '::1', 'hooks.internal']);
    assert.equal(isAllowed('a.example', '10.9.8.7'), true);
    assert.equal(isAllowed('a.example', '::1'), true);
    assert.equal(isAllowed('Hooks.Internal', '192.168.1.1'), true);
    assert.equal(isAllowed('a.example', '192.168.1.1'), false);
    assert.equal(isAllowed('x.hooks.internal', '192.168.1.1'), false);
    assert.equal(isAllowed('a.example', '127.0.0.1'), false);
    assert.equal(isAllowed('a.example', '::2'), false);
    assert.deepEqual(readConfig({ CALLBACK_ALLOW: '10.0.0.0/8, hooks.internal' }).callbackAllow, [
      '10.0.0.0/8',
      'hooks.internal',
    ]);
    for (const bad of ['10.0.0.0/33', 'http://a', 'a/8', 'a,,b', '999.1.1.1', '-a']) {
      assert.throws(() => readConfig({ CALLBACK_ALLOW: bad }), ConfigError, bad);
    }
  });

  test('goes to the services of clouds only if their very address is allowed', () => {
    const services = [
      '169.254.169.254',
      '169.254.170.2',
      '168.63.129.16',
      '100.100.100.200',
      '192.0.0.192',
      'fd00:ec2::254',
      'fd00:ec2::23',
      'fd20:ce::254',
      'fd00:c1::a9fe:a9fe',
      'fd00:42::42',
      'fd00:a9fe:a9fe::1',
      'fe80::a9fe:a9fe',
      'fe80::a9fe:a9fe%lo',
      '::ffff:169.254.169.254',
      '::ffff:a83f:8110',
      '::169.254.169.254',
      '64:ff9b::a9fe:a9fe',
      '64:ff9b::168.63.129.16',
      '64:ff9b:1:a9fe:a9:fe00::',
      '64:ff9b:1::6464:64c8',
      '2002:a9fe:a9fe::1',
      // The address behind a translator whose prefix is the network's own.
      '2a00:1:2::a83f:8110',
    ];
    const wide = createAddressCheck(['0.0.0.0/0', '::/0', 'hooks.internal']);
    for (const address of services)
      for (const host of ['a.example', 'hooks.internal', address])
        assert.equal(wide(host, address), false, `${host} ${address}`);
    for (const address of services.filter((each) => !each.includes('%')))
      for (const entry of [address, `${address}/${address.includes(':') ? 128 : 32}`])
        assert.equal(createAddressCheck([entry])('a.example', address), true, entry);
    for (const near of ['168.63.129.15', '168.63.129.17', '2a00:1:2::a83f:8111', '2a00:a9fe:a9fe::1'])
      assert.equal(createAddressCheck([])('a.example', near), true, near);
    for (const near of ['10.0.0.1', '64:ff9b::a00:1', '2002:a00:1::1', 'fd00:ec3::254', '100.100.100.201'])
      assert.equal(wide('a.example', near), true, near);
  });

  const isAllowed = createAddressCheck(['127.0.0.1']);

  test('is signed over its time and body, and names the host', async () => {
    const receiver = await startReceiver(answerWith(204));
    const url = `http://hooks.example:${receiver.port}/a?b=c`;
    const nowMs = () => 1_700_000_000_999;
    const result = await call({ url, secret: 's' }, '{"ü":1}', {
      isAllowed,
      resolve: async () => ['127.0.0.1'],
      nowMs,
    });
    assert.deepEqual(result, { answer: 204 });
    const [{ request, body }] = receiver.received as [Received];
    assert.equal(request.url, '/a?b=c');
    assert.equal(request.headers.host, `hooks.example:${receiver.port}`);
    assert.equal(request.headers['content-type'], 'application/json');
    const expected = createHmac('sha256', 's').update(`1700000000.${body}`).digest('hex');
    assert.equal(request.headers['sluice-signature'], `t=1700000000,v1=${expected}`);
    receiver.stop();
  });

  test('resolves the name once and connects to that address, whatever the name means later', async () => {
    const receiver = await startReceiver(answerWith(200));
    const url = `http://rebinds.example:${receiver.port}/`;
    let asked = 0;
    const resolve = async () => {
      asked += 1;
      return asked === 1 ? ['127.0.0.1'] : ['192.0.2.1'];
    };
    assert.deepEqual(await call({ url, secret: '' }, '{}', { isAllowed, resolve }), { answer: 200 });
    assert.equal(asked, 1);
    const refusing = {
      isAllowed: createAddressCheck([]),
      resolve: async () => ['93.184.215.14', '127.0.0.1'],
    };
    assert.deepEqual(await call({ url, secret: '' }, '{}', refusing), { error: 'address_not_allowed' });
    assert.equal(receiver.received.length, 1, 'nothing is sent to an address that is not allowed');
    receiver.stop();
  });

  test('is not sent to a loopback address, however the URL spells it', async () => {
    const receiver = await startReceiver(answerWith(200));
    const strict = createAddressCheck([]);
    for (const host of [
      '127.0.0.1',
      'localhost',
      '0x7f.1',
      '2130706433',
      '127.1',
      '[::1]',
      '[::ffff:7f00:1]',
      '0',
    ]) {
      const result = await call({ url: `http://${host}:${receiver.port}/`, secret: '' }, '{}', {
        isAllowed: strict,
      });
      assert.deepEqual(result, { error: 'address_not_allowed' }, host);
    }
    assert.equal(receiver.received.length, 0);
    receiver.stop();
  });

  test('follows no redirect, and reads no more of an answer than its status', async () => {
    const target = await startReceiver(answerWith(200));
    const receiver = await startReceiver((reply, count) => {
      if (count === 1) {
        reply.writeHead(302, { Location: `http://127.0.0.1:${target.port}/` });
        reply.end();
        return;
      }
      // The body of this answer never ends.
      const timer = setInterval(() => reply.write('x'.repeat(65_536)), 1);
      reply.once('close', () => clearInterval(timer));
    });
    const where = { url: `http://127.0.0.1:${receiver.port}/`, secret: '' };
    assert.deepEqual(await call(where, '{}', { isAllowed }), { answer: 302 });
    assert.deepEqual(await call(where, '{}', { isAllowed }), { answer: 200 });
    assert.equal(target.received.length, 0);
    receiver.stop();
    target.stop();
  });

  test('ends at its deadline when the name or the server does not answer', async () => {
    const receiver = await startReceiver(() => undefined);
    const where = { url: `http://hangs.example:${receiver.port}/`, secret: '' };
    const late = { error: 'no_answer_in_time' };
    const never = () => new Promise<string[]>(() => undefined);
    assert.deepEqual(await call(where, '{}', { isAllowed, msMax: 200, resolve: never }), late);
    const resolve = async () => ['127.0.0.1'];
    // On a machine that pauses a call may reach its deadline before it is sent.
    await until(async () => {
      assert.deepEqual(await call(where, '{}', { isAllowed, msMax: 200, resolve }), late);
      return receiver.received.length > 0;
    }, 'the server has received a call that it does not answer');
    receiver.stop();
    const { port } = receiver;
    const gone = await call({ url: `http://127.0.0.1:${port}/`, secret: '' }, '{}', { isAllowed });
    assert.deepEqual(gone, { error: 'connection_refused' });
    const unknown = { isAllowed, resolve: async () => Promise.reject(new Error('no such name')) };
    assert.deepEqual(await call(where, '{}', unknown), { error: 'name_not_resolved' });
  });

  test('names the host to a server with TLS, and trusts no self-signed certificate', async () => {
    let hello = '';
    const server = createTcpServer((socket) => {
      socket.once('data', (bytes: Buffer) => {
        hello = bytes.toString('latin1');
        socket.destroy();
      });
      socket.on('error', () => undefined);
    });
    const { port, stop } = await listen(server);
    const resolve = async () => ['127.0.0.1'];
    const result = await call({ url: `https://sni.example:${port}/`, secret: '' }, '{}', {
      isAllowed,
      resolve,
    });
    assert.deepEqual(result, { error: 'connection_failed' });
    assert.ok(hello.includes('sni.example'));
    stop();
  });

  test('tries the addresses of a name in turn until one connects, and sends once', async () => {
    const receiver = await startReceiver(answerWith(204));
    const url = `http://several.example:${receiver.port}/`;
    const loopback = createAddressCheck(['127.0.0.0/8']);
    const callTo = (...addresses: string[]) =>
      call({ url, secret: '' }, '{}', { isAllowed: loopback, resolve: async () => addresses });
    assert.deepEqual(await callTo('127.0.0.2', '127.0.0.3', '127.0.0.1', '127.0.0.1'), { answer: 204 });
    assert.equal(receiver.received.length, 1);
    const refused = { error: 'connection_refused' };
    assert.deepEqual(await callTo('127.0.0.2', '127.0.0.3'), refused);
    const others = Array.from({ length: callbacks.addressesTriedMax - 1 }, (_, at) => `127.0.0.${at + 2}`);
    assert.deepEqual(await callTo(...others, '127.0.0.1'), { answer: 204 });
    assert.deepEqual(await callTo(...others, '127.0.0.9', '127.0.0.1'), refused);
    assert.equal(receiver.received.length, 2);
    assert.deepEqual(await callTo('127.0.0.1', '10.0.0.1'), { error: 'address_not_allowed' });
    assert.equal(receiver.received.length, 2, 'nothing is sent if one address is not allowed');
    receiver.stop();
  });

  test('goes on to the next address when one does not connect in its share of the time', async () => {
    let connections = 0;
    const silent = createTcpServer((socket) => socket.on('error', () => undefined));
    // A port that the kernel does not assign by itself, since such a port may be in use at the other address.
    const port = await freePort();
    silent.listen(port, '127.0.0.2');
    await once(silent, 'listening');
    const other = createTcpServer((socket) => {
      connections += 1;
      socket.destroy();
    });
    other.listen(port, '127.0.0.1');
    await once(other, 'listening');
    // The first address accepts the connection but begins no TLS.
    await until(async () => {
      const result = await call({ url: `https://several.example:${port}/`, secret: '' }, '{}', {
        isAllowed: createAddressCheck(['127.0.0.0/8']),
        resolve: async () => ['127.0.0.2', '127.0.0.1'],
        msMax: 8_000,
      });
      assert.deepEqual(result, { error: 'no_answer_in_time' });
      return connections > 0;
    }, 'the next address is tried in time');
    assert.equal(connections, 1);
    silent.close();
    other.close();
  });

  test('is tried again after 5 s, then more and more rarely, at least once an hour', () => {
    const pauses = Array.from({ length: 40 }, (_, at) => callbackPauseMs(at + 1, 0.5));
    assert.equal(pauses[0], callbacks.pauseMsMin);
    assert.equal(pauses.at(-1), callbacks.pauseMsMax);
    assert.deepEqual(
      pauses,
      pauses.toSorted((a, b) => a - b),
    );
  });
});

describe('the name of a callback', () => {
  const known = {
    'both.example': ['192.0.2.1', '192.0.2.2', '192.0.2.3', '2001:db8:0:0:0:0:0:1'],
    'six.example': ['2001:db8:0:0:0:0:0:2'],
  };

  test('is asked for in DNS, in both families', async () => {
    const dns = await startDnsServer(known);
    const resolve = createResolve([], { servers: [dns.address] });
    assert.deepEqual(await resolve('both.example', 5_000), [
      '192.0.2.1',
      '2001:db8::1',
      '192.0.2.2',
      '192.0.2.3',
    ]);
    assert.deepEqual(await resolve('six.example', 5_000), ['2001:db8::2']);
    dns.stop();
  });

  test('takes no thread of the process while its DNS server is silent, and is given up in time', async () => {
    const dns = await startDnsServer(known);
    const resolve = createResolve([], { servers: [dns.address] });
    // If the machine pauses meanwhile, other names are asked for.
    const silent = await until(async () => {
      let ended = 0;
      const before = dns.asked();
      const asked = Array.from({ length: 16 }, (_, at) =>
        resolve(`silent-${before + at}.example`, 4_000).catch((error: Error) => {
          ended += 1;
          return error.message;
        }),
      );
      await until(() => dns.asked() >= before + 32, 'all names are asked for');
      // Both need one of the few threads that Node has.
      assert.deepEqual(await createResolve(['localhost'])('localhost', 3_000), ['127.0.0.1']);
      await lookup('localhost');
      return ended === 0 && asked;
    }, 'others are looked up while the names are asked for');
    assert.deepEqual(await Promise.all(silent), Array(16).fill('DNS has no address of the name'));
    dns.stop();
  });

  test('may be in /etc/hosts, which comes before DNS', async () => {
    const dns = await startDnsServer(known);
    const hostsFile = join(tempDir('hosts'), 'hosts');
    writeFileSync(
      hostsFile,
      '# both.example\n10.0.0.1\tBoth.Example other.example # six.example\n::1 both.example\n',
    );
    const resolve = createResolve([], { servers: [dns.address], hostsFile });
    assert.deepEqual(await resolve('both.example', 5_000), ['10.0.0.1', '::1']);
    assert.equal(dns.asked(), 0);
    assert.deepEqual(await resolve('six.example', 5_000), ['2001:db8::2']);
    const without = createResolve([], { servers: [dns.address], hostsFile: `${hostsFile}.missing` });
    assert.deepEqual(await without('six.example', 5_000), ['2001:db8::2']);
    dns.stop();
  });

  test('is looked up as the system does if CALLBACK_ALLOW has it', async () => {
    const dns = await startDnsServer(known);
    const hostsFile = join(tempDir('hosts'), 'hosts');
    writeFileSync(hostsFile, '');
    const resolve = createResolve(['LocalHost', '10.0.0.0/8'], { servers: [dns.address], hostsFile });
    const [all, again] = await Promise.all([resolve('localhost', 5_000), resolve('localhost', 5_000)]);
    assert.ok(all.includes('127.0.0.1') || all.includes('::1'));
    assert.deepEqual(again, all);
    assert.equal(dns.asked(), 0);
    dns.stop();
  });
});

test('calls beyond the number at once wait in line', () => {
  const delayMs = createWaitingLine();
  const { busyMs, busySpacingMs } = callbackJobs;
  assert.deepEqual(
    [delayMs('a', 0), delayMs('a', 0), delayMs('b', 0), delayMs('a', 10 * busyMs)],
    [busyMs, busyMs + busySpacingMs, busyMs, busyMs],
  );
});

describe('a complete deletion', () => {
  let sluice: SluiceHandle;
  let account: TestAccount;
  let token: string;
  let worker: Child;
  let secret: string;
  let receiver: Awaited<ReturnType<typeof startReceiver>>;
  let status = 200;

  before(async () => {
    receiver = await startReceiver((reply) => answerWith(status)(reply));
    sluice = await startSluice({ env: { JOB_LOCK_MS: '1000', CALLBACK_ALLOW: '127.0.0.1' } });
    account = await createTestAccount(sluice, 'Callbacks');
    token = await getToken(sluice, account);
    [worker] = sluice.workers as [Child];
    const url = `http://127.0.0.1:${receiver.port}/hook`;
    const set = (await sluice.admin('accounts', 'callback', account.accountId, '--url', url)) as {
      secret: string;
    };
    assert.deepEqual(set, { account_id: account.accountId, url, secret: set.secret });
    secret = set.secret;
  });

  after(async () => {
    receiver?.stop();
    await sluice?.stop();
  });

  type Callback = NonNullable<DeletionRequest['callback']>;

  async function callbackOf(requestId: string): Promise<Callback | undefined> {
    const { text } = await readStatus(sluice, token, requestId);
    return (JSON.parse(text) as { callback?: Callback }).callback;
  }

  function callsFor(requestId: string): Received[] {
    return receiver.received.filter(({ body }) => body.includes(requestId));
  }

  async function untilState(requestId: string, state: Callback['state']): Promise<Callback> {
    return until(async () => {
      const callback = await callbackOf(requestId);
      return callback?.state === state && callback;
    }, `the callback is ${state}`);
  }

  /** Records in Redis that a deletion of an account was just completed. */
  async function recordDue(
    redis: Redis,
    id: string,
    account_id: string,
    completed_at: string,
  ): Promise<void> {
    const document = {
      deletion_request_id: id,
      account_id,
      status: 'complete',
      state: 'complete',
      targets: 1,
      completed_at,
      callback: { state: 'pending', tries: [] },
    };
    await redis.hset(registryKeys.deletions, id, JSON.stringify(document));
    await redis.sadd(registryKeys.dueCallbacks, id);
  }

  test('calls its account once, signed, with what the status says', async () => {
    const requestId = await submitNow(sluice, token, [{ identity: 'called for' }]);
    const callback = await untilState(requestId, 'delivered');
    assert.deepEqual(
      callback.tries.map(({ at: _, ...each }) => each),
      [{ answer: 200 }],
    );
    const [{ request, body }, ...more] = callsFor(requestId) as [Received];
    assert.equal(more.length, 0);
    assert.equal(request.method, 'POST');
    const [, seconds, signature] =
      /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(request.headers['sluice-signature'])) ?? [];
    assert.equal(signature, createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex'));
    assert.ok(Math.abs(Number(seconds) - Date.now() / 1_000) < 60);
    const { callback: _, ...seen } = JSON.parse((await readStatus(sluice, token, requestId)).text) as Record<
      string,
      unknown
    >;
    assert.deepEqual(JSON.parse(body), { type: 'deletion.complete', account_id: account.accountId, ...seen });
    assertDocumentedCall(body);
    assert.ok(!body.includes('called for'));
  });

  test('calls no account that has no callback', async () => {
    const other = await createTestAccount(sluice, 'Uncalled');
    const ownToken = await getToken(sluice, other);
    const requestId = await deleteNow(sluice, ownToken, [{ identity: 'a' }]);
    assert.ok(!(await readStatus(sluice, ownToken, requestId)).text.includes('callback'));
    assert.equal(callsFor(requestId).length, 0);
  });

  test('calls even if the worker is killed right after the completion, and Redis is emptied while the call is due', async () => {
    const killed = await sluice.addWorker({ CRASH_AT: 'completed:1' });
    worker.sigstop();
    const requestId = await submitNow(sluice, token, [{ identity: 'crash' }]);
    await until(() => !killed.running, 'the worker has completed it');
    assert.deepEqual(await callbackOf(requestId), { state: 'pending', tries: [] });
    assert.equal(callsFor(requestId).length, 0);
    await withRedis(sluice, (redis) => redis.flushall());
    await restoreState(sluice);
    token = await getToken(sluice, account);
    assert.match((await readStatus(sluice, token, requestId)).text, /"status":"complete"/);
    worker.sigcont();
    await untilState(requestId, 'delivered');
    assert.equal(callsFor(requestId).length, 1);
  });

  test('calls although Redis is emptied just before a round completes the deletion', async () => {
    worker.sigstop();
    const requestId = await submitNow(sluice, token, [{ identity: 'emptied' }]);
    await withRedis(sluice, async (redis) => {
      const clickhouse = connectClickHouse({ url: sluice.clickhouse.testerUrl, database: sluice.database });
      // Redis carries out the commands of a connection in order, so this comes before what the round reads next.
      const crash = (name: string) => {
        if (name === 'targets_purged') void redis.flushall();
      };
      const options = { ...(await roundOptions(redis, clickhouse)), crash };
      await assert.rejects(runDeletionRound(options), StateNotLoaded);
      await clickhouse.close();
    });
    await restoreState(sluice);
    token = await getToken(sluice, account);
    worker.sigcont();
    await untilState(requestId, 'delivered');
    assert.ok(callsFor(requestId).length >= 1);
  });

  test('calls again if the worker is killed after an answer and before it records it', async () => {
    const killed = await sluice.addWorker({ CRASH_AT: 'call_answered:1' });
    worker.sigstop();
    const requestId = await submitNow(sluice, token, [{ identity: 'answered' }]);
    await until(() => !killed.running, 'the worker has called');
    assert.deepEqual(await callbackOf(requestId), { state: 'pending', tries: [] });
    worker.sigcont();
    const { tries } = await untilState(requestId, 'delivered');
    assert.equal(tries.length, 1);
    const bodies = callsFor(requestId).map(({ body }) => body);
    assert.ok(bodies.length >= 2, `${bodies.length} calls`);
    assert.equal(new Set(bodies).size, 1);
  });

  test('calls again after a call that failed, and lists the attempts', async () => {
    status = 500;
    const requestId = await submitNow(sluice, token, [{ identity: 'again' }]);
    await until(async () => ((await callbackOf(requestId))?.tries.length ?? 0) > 0, 'a call has failed');
    status = 200;
    const { tries } = await untilState(requestId, 'delivered');
    const answers = tries.map(({ at: _, ...each }) => each);
    // The next call comes after 5 s. If the machine pauses for that long, the second call fails too.
    assert.ok(answers.length >= 2);
    assert.deepEqual(answers, [...answers.slice(1).map(() => ({ answer: 500 })), { answer: 200 }]);
    const bodies = new Set(callsFor(requestId).map(({ body }) => body));
    assert.equal(bodies.size, 1, 'every try has the same bytes');
  });

  test('calls its account although 5,000 calls to silent servers of five other accounts are due', async () => {
    const silent = await startReceiver(() => undefined);
    const others: string[] = [];
    for (let n = 0; n < 5; n += 1) {
      const { accountId } = await createTestAccount(sluice, `Silent ${n}`);
      await sluice.admin('accounts', 'callback', accountId, '--url', `http://127.0.0.1:${silent.port}/`);
      others.push(accountId);
    }
    const { ofAccountMax } = callbackJobs.places;
    const ids = Array.from(
      { length: 5_000 },
      (_, at) => `3d6f0a52-8f6e-4c9e-9a57-${String(at).padStart(12, '0')}`,
    );
    await withRedis(sluice, (redis) =>
      Promise.all(ids.map((id, at) => recordDue(redis, id, others[at % 5] ?? '', new Date().toISOString()))),
    );
    await until(
      () => silent.received.length >= 5 * ofAccountMax,
      'the silent accounts use all of their shares',
    );
    // A machine that pauses delays some calls, but rarely all, so the quickest one counts.
    let waitedMs = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < 3 && waitedMs >= callbacks.callMsMax / 2; tries += 1) {
      const requestId = await submitNow(sluice, token, [{ identity: 'beside the silent' }]);
      await untilState(requestId, 'delivered');
      const { completed_at = '', callback } = await showDeletion(sluice, requestId);
      waitedMs = Date.parse(callback?.tries[0]?.at ?? '') - Date.parse(completed_at);
    }
    assert.ok(waitedMs < callbacks.callMsMax / 2, `the call began ${waitedMs} ms after the completion`);
    assert.ok(silent.atOnceMost() <= 5 * ofAccountMax, `${silent.atOnceMost()} calls at once`);
    for (const accountId of others) await sluice.admin('accounts', 'callback', accountId, '--none');
    await withRedis(sluice, async (redis) => {
      await redis.srem(registryKeys.dueCallbacks, ...ids);
      await redis.hdel(registryKeys.deletions, ...ids);
      await redis.zrem(registryKeys.uncopied, ...ids);
    });
    silent.stop();
  });

  test('gives up after a day, or when the account wants no calls any more', async () => {
    worker.sigstop();
    const [dueLong, unwanted] = [
      '3d6f0a52-8f6e-4c9e-9a57-000000000001',
      '3d6f0a52-8f6e-4c9e-9a57-000000000002',
    ];
    const completed_at = new Date().toISOString();
    await withRedis(sluice, async (redis) => {
      for (const [id, account_id] of [
        [dueLong, account.accountId],
        [unwanted, '1'],
      ] as const) {
        await recordDue(redis, id, account_id, completed_at);
      }
      const isAllowed = createAddressCheck([]);
      const at = (ms: number) => ({ isAllowed, nowMs: () => Date.parse(completed_at) + ms });
      const isDue = (id: string) => redis.sismember(registryKeys.dueCallbacks, id);
      assert.equal(await tryCallback(redis, dueLong, at(callbacks.triedForMs - 1)), 'due');
      assert.equal(await isDue(dueLong), 1);
      assert.equal(await tryCallback(redis, dueLong, at(callbacks.triedForMs)), 'ended');
      assert.equal(await isDue(dueLong), 0);
      const document = JSON.parse(
        (await redis.hget(registryKeys.deletions, dueLong)) ?? '',
      ) as DeletionRequest;
      assert.equal(document.callback?.state, 'failed');
      assert.deepEqual(
        document.callback.tries.map(({ at: _, ...each }) => each),
        Array(2).fill({ error: 'address_not_allowed' }),
      );
      assert.equal(await tryCallback(redis, unwanted, at(0)), 'ended');
      assert.equal(await isDue(unwanted), 0);
      await redis.hdel(registryKeys.deletions, dueLong, unwanted);
      await redis.zrem(registryKeys.uncopied, dueLong, unwanted);
    });
    worker.sigcont();
  });

  test('is tried out once at a time for each account', async () => {
    const silent = await startReceiver(() => undefined);
    const other = await createTestAccount(sluice, 'Tried out');
    const path = `/accounts/${other.accountId}/callback`;
    await administer(sluice, 'PUT', path, { url: `http://127.0.0.1:${silent.port}/` });
    const tried = administer<Record<string, unknown>>(sluice, 'POST', `${path}/test`, {});
    await until(() => silent.received.length > 0, 'the call has come');
    await assert.rejects(
      sluice.admin('accounts', 'callback', other.accountId, '--test'),
      /another test of this callback is still running/,
    );
    await administer(sluice, 'POST', `/accounts/${account.accountId}/callback/test`, {});
    silent.stop();
    assert.equal((await tried).delivered, false);
    const after = await administer<Record<string, unknown>>(sluice, 'POST', `${path}/test`, {});
    assert.equal(after.error, 'connection_refused', 'the next one may begin at once');
    assert.equal(silent.received.length, 1);
  });

  test('is sent to the URL that an administrator sets, who sees the secret once', async () => {
    const { accountId } = account;
    const path = `/accounts/${accountId}/callback`;
    const shown = await administer<Record<string, unknown>>(sluice, 'GET', path);
    assert.deepEqual(Object.keys(shown), ['account_id', 'url']);
    assert.deepEqual(await sluice.admin('accounts', 'callback', accountId), shown);
    const tested = await administer<Record<string, unknown>>(sluice, 'POST', `${path}/test`, {});
    assert.deepEqual(tested, { account_id: accountId, delivered: true, answer: 200 });
    assertDocumentedCall(receiver.received.at(-1)?.body ?? '');
    assert.deepEqual(JSON.parse(receiver.received.at(-1)?.body ?? ''), {
      type: 'test',
      account_id: accountId,
    });
    for (const url of [
      '',
      'ftp://a',
      'https://user:pw@a.example/',
      'https://a.example/#x',
      `https://a.example/${'x'.repeat(2048)}`,
    ]) {
      await assert.rejects(
        sluice.admin('accounts', 'callback', accountId, '--url', url),
        /the URL must begin/,
        url,
      );
    }
    await assert.rejects(sluice.admin('accounts', 'callback', '1'), /there is no account/);
    await assert.rejects(
      sluice.admin('accounts', 'callback', accountId, '--none', '--test'),
      /accounts callback/,
    );
    const anew = await administer<{ secret: string }>(sluice, 'PUT', path, {
      url: `http://127.0.0.1:${receiver.port}/anew`,
    });
    assert.match(anew.secret, /^slc_[\w-]{43}$/);
    assert.notEqual(anew.secret, secret);
    for (const host of ['[::1]', '10.0.0.1', '169.254.169.254', '0x7f.2'])
      await assert.rejects(
        sluice.admin('accounts', 'callback', accountId, '--url', `http://${host}/`),
        /an address that callbacks may not reach/,
        host,
      );
    const kept = await administer<Record<string, unknown>>(sluice, 'GET', path);
    assert.equal(kept.url, `http://127.0.0.1:${receiver.port}/anew`);
    assert.deepEqual(await administer(sluice, 'DELETE', path), { account_id: accountId, url: null });
    await assert.rejects(sluice.admin('accounts', 'callback', accountId, '--test'), /no callback/);
    const lines = (await sluice.admin('audit', 'list')) as { action: string; account_id: string }[];
    const actions = lines.filter((line) => line.account_id === accountId).map(({ action }) => action);
    for (const action of ['set_callback', 'test_callback', 'remove_callback'])
      assert.ok(actions.includes(action), action);
    const printed = [
      lines,
      await sluice.admin('accounts', 'list'),
      sluice.api.map((api) => api.output()),
      worker.output(),
    ];
    for (const each of [secret, anew.secret]) assert.ok(!JSON.stringify(printed).includes(each));
  });
});
