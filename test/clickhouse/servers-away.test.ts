// Which of several ClickHouse servers count as there when one of them hangs, and which statements it is sent then.

import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { connectClickHouse, patientOf } from '../../src/clickhouse/client.js';
import { guardServers } from '../../src/clickhouse/right-servers.js';
import { connectServers, reachableServers, serversOf } from '../../src/clickhouse/servers.js';
import { startTcpProxy } from '../harness/tcp-proxy.js';
import { until, within } from '../harness/wait.js';

/** A simulated ClickHouse, which hangs while `hangs` is set. */
async function startServer(number: number) {
  const answer = `[\n{"number":${number},"deployment":"of the test"}\n]\n`;
  const state = {
    hangs: false,
    held: new Set<ServerResponse>(),
    compared: 0,
    received: [] as string[],
  };
  const server = createServer(async (request, reply) => {
    let statement = '';
    for await (const chunk of request) statement += chunk;
    state.received.push(statement);
    if (statement.includes('FROM server_number')) state.compared += 1;
    if (!state.hangs || request.url === '/ping') {
      reply.end(answer);
      return;
    }
    state.held.add(reply);
    // The caller has given up waiting.
    reply.once('close', () => state.held.delete(reply));
  });
  await new Promise<void>((settle) => server.listen(0, '127.0.0.1', settle));
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  return Object.assign(state, { answer, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
}

test('a server that hangs is waited for once, and is there again when it answers', async () => {
  const [primary, other] = [await startServer(0), await startServer(1)];
  const clickhouse = connectServers({ urls: [primary.url, other.url], database: 'sluice' });
  const servers = serversOf(clickhouse);
  const there = async () => [...(await reachableServers(servers))];
  assert.deepEqual(await there(), [0, 1]);

  other.hangs = true;
  assert.deepEqual(await there(), [0]);
  const asked = servers.all[1]?.query({ query: 'SELECT 1', abort_signal: AbortSignal.timeout(100) });
  await assert.rejects(within(asked as Promise<unknown>, 60_000), /aborted/);
  await until(async () => {
    const seen = await there();
    // These requests make sure that the server has noticed which earlier ones were given up.
    for (const _ of [1, 2]) await (await fetch(`${other.url}/ping`)).text();
    return seen.length === 1 && other.held.size > 0;
  }, 'the server is asked again, and nobody waits for its answer');

  other.hangs = false;
  for (const reply of other.held) reply.end(other.answer);
  await until(async () => (await there()).length === 2, 'the server is there again');
  await clickhouse.close();
});

/** Two servers, and guarded connections to them, to the other through a proxy; a statement waits this long for its server to be compared. */
async function startGuarded(waitMsMax?: number) {
  const [primary, other] = [await startServer(0), await startServer(1)];
  const target = { port: portOf(other.url) };
  const proxy = await startTcpProxy(target);
  const urls = [primary.url, `http://127.0.0.1:${proxy.port}`];
  const clients = urls.map((url) => connectClickHouse({ url, database: 'sluice' }));
  const guarded = guardServers(
    clients,
    () => true,
    () => undefined,
    waitMsMax,
  );
  after(async () => {
    for (const client of clients) await client.close();
    await proxy.close();
  });
  const ask = clients[1] as (typeof clients)[number];
  const query = (text = 'SELECT 1', from = ask) =>
    from.query({ query: text, format: 'TabSeparated' }).then((answer) => answer.text());
  /** Ends the connections to the other server's address, which leads to this one from now on; settles when this was noticed. */
  const lead = async (to: { readonly url: string }) => {
    target.port = portOf(to.url);
    proxy.reset();
    await new Promise((settle) => setTimeout(settle, 100));
  };
  return { other, proxy, compare: () => guarded.compare(1), query, patient: patientOf(ask), lead };
}

const portOf = (url: string) => Number(new URL(url).port);

test('nothing is sent over a new connection that leads to another server, though the former one led to the right one just now', async () => {
  const { other, compare, query, patient, lead } = await startGuarded();
  const wrong = await startServer(0);
  assert.equal(await compare(), 'right');
  await Promise.all([query(), query(), query('SELECT 2', patient)]);
  await lead(wrong);
  for (const from of [undefined, patient])
    await assert.rejects(query('SELECT 3', from), /server 1 of CLICKHOUSE_URL .* is server 0/);
  assert.ok(wrong.received.every((statement) => statement.includes('FROM server_number')));
  await lead(other);
  await query();
  assert.equal(await compare(), 'right');
});

test('connections that were checked are used again, closed ones are replaced, and one that is refused fails its statement', async () => {
  const { other, proxy, compare, query, lead } = await startGuarded();
  await compare();
  const before = other.compared;
  for (let statement = 0; statement < 5; statement += 1) await query();
  assert.equal(other.compared, before, 'no statement needs a new connection');
  await lead(other);
  await query();
  assert.equal(other.compared, before + 1);
  await proxy.close();
  await until(
    () =>
      query().then(
        () => false,
        ({ code }) => code === 'ECONNREFUSED',
      ),
    'the address refuses connections',
  );
});

test('no more connections are opened than there may be, and all statements get one', async () => {
  const { other, compare, query, proxy } = await startGuarded();
  await compare();
  other.hangs = true;
  const asked = Array.from({ length: 60 }, () => query());
  const release = setInterval(() => {
    for (const reply of other.held) reply.end(other.answer);
  }, 20);
  let most = 0;
  const answers = Promise.all(asked).finally(() => clearInterval(release));
  const looking = setInterval(() => {
    most = Math.max(most, proxy.connections);
  }, 5);
  await answers.finally(() => clearInterval(looking));
  assert.ok(most > 1 && most <= 16, `${most} connections`);
});

test('a statement without a deadline of its own does not wait for ever until its server is compared', async () => {
  const { other, query } = await startGuarded(100);
  other.hangs = true;
  await assert.rejects(within(query(), 60_000), /aborted/);
  other.hangs = false;
  await until(
    () =>
      query().then(
        () => true,
        () => false,
      ),
    'a later statement is answered',
  );
});
