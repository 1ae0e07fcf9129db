// Which of several ClickHouse servers answer, when one of them hangs.

import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { until, within } from '../../harness/wait.js';
import { connectServers, serversOf, serversThere } from '../../src/clickhouse/servers.js';

/** Stands in for a ClickHouse that hangs as long as `hangs` is set. */
async function startServer(number: number) {
  const answer = `{"number":${number},"deployment":"of the test"}\n`;
  const state = { hangs: false, held: new Set<ServerResponse>() };
  const server = createServer((request, reply) => {
    request.resume();
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
  const [home, other] = [await startServer(0), await startServer(1)];
  const clickhouse = connectServers([home.url, other.url], 'sluice');
  const servers = serversOf(clickhouse);
  const there = async () => [...(await serversThere(servers))];
  assert.deepEqual(await there(), [0, 1]);

  other.hangs = true;
  assert.deepEqual(await there(), [0]);
  const asked = servers.all[1]?.query({ query: 'SELECT 1', abort_signal: AbortSignal.timeout(100) });
  await assert.rejects(within(asked as Promise<unknown>, 60_000), /aborted/);
  await until(
    async () => {
      const seen = await there();
      // By then the server has noticed whatever was given up before.
      for (const _ of [1, 2]) await (await fetch(`${other.url}/ping`)).text();
      return seen.length === 1 && other.held.size > 0;
    },
    { deadlineMs: 60_000, what: 'it is asked again, and nobody waits for the answer' },
  );

  other.hangs = false;
  for (const reply of other.held) reply.end(other.answer);
  await until(async () => (await there()).length === 2, { deadlineMs: 60_000, what: 'it is there again' });
  await clickhouse.close();
});
