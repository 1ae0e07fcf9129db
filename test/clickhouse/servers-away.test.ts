// Which of several ClickHouse servers count as there when one of them hangs, and which statements it is sent then.

import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { guardServers } from '../../src/clickhouse/right-servers.js';
import { connectServers, reachableServers, serversOf } from '../../src/clickhouse/servers.js';
import { until, within } from '../harness/wait.js';

/** A simulated ClickHouse, which hangs while `hangs` is set. */
async function startServer(number: number) {
  const answer = `[\n{"number":${number},"deployment":"of the test"}\n]\n`;
  const state = {
    hangs: false,
    held: new Set<ServerResponse>(),
    compared: 0,
  };
  const server = createServer(async (request, reply) => {
    let statement = '';
    for await (const chunk of request) statement += chunk;
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

/** Two servers, and guarded connections to them; a statement waits this long for its server to be compared. */
async function startGuarded(waitMsMax?: number) {
  const started = [await startServer(0), await startServer(1)] as const;
  const clients = started.map(({ url }) => connectClickHouse({ url, database: 'sluice' }));
  const guarded = guardServers(
    clients,
    () => true,
    () => undefined,
    waitMsMax,
  );
  after(() => Promise.all(clients.map((client) => client.close())));
  const query = (abort_signal?: AbortSignal) =>
    (clients[1] as (typeof clients)[number]).query({
      query: 'SELECT 1',
      format: 'TabSeparated',
      ...(abort_signal !== undefined && { abort_signal }),
    });
  return { other: started[1], compare: () => guarded.compare(1), query };
}

test('a server to which a connection fails while it is compared is compared again before it is used', async () => {
  const { other, compare, query } = await startGuarded();
  assert.equal(await compare(), 'right');
  other.hangs = true;
  const failing = new AbortController();
  const failed = assert.rejects(query(failing.signal), /aborted/);
  const compared = compare();
  const both = { deadlineMs: 60_000, what: 'the statement and the comparison are there' };
  await until(async () => other.held.size === 2, both);
  failing.abort();
  await failed;
  other.hangs = false;
  for (const reply of other.held) reply.end(other.answer);
  assert.equal(await compared, 'right');
  assert.equal(other.compared, 3);
  await (await query()).text();
  assert.equal(other.compared, 3, 'the server counts as the right one from then on');
});

test('a statement without a deadline of its own does not wait for ever until its server is compared', async () => {
  const { other, query } = await startGuarded(100);
  other.hangs = true;
  await assert.rejects(within(query(), 60_000), /aborted/);
  other.hangs = false;
  await (await query()).text();
});
