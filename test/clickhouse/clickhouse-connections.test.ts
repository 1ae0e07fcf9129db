// The connections of a client of ClickHouse, each of which is checked before it is used.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { connectClickHouse, guardStatements } from '../../src/clickhouse/client.js';

test('each of many statements at once gets its own answer, over few connections that were checked', async () => {
  const firstOf = new Map<unknown, string>();
  const server = createServer(async (request, reply) => {
    const statement = await text(request);
    if (!firstOf.has(request.socket)) firstOf.set(request.socket, statement);
    setTimeout(() => reply.end(statement), 1);
  });
  await new Promise<void>((settle) => server.listen(0, '127.0.0.1', settle));
  const { port } = server.address() as AddressInfo;
  const client = connectClickHouse({ url: `http://127.0.0.1:${port}`, database: 'sluice' });
  after(async () => {
    await client.close();
    server.close();
    server.closeAllConnections();
  });
  guardStatements(
    client,
    () => undefined,
    (over) => over().command({ query: 'check' }),
  );
  const ask = async (query: string) => text((await client.exec({ query })).stream);
  await Promise.all(
    Array.from({ length: 40 }, async (_, caller) => {
      for (let n = 0; n < 20; n += 1) assert.equal(await ask(`${caller} ${n}`), `${caller} ${n}`);
    }),
  );
  assert.ok(firstOf.size <= 16, `${firstOf.size} connections`);
  assert.deepEqual(new Set(firstOf.values()), new Set(['check']));
});
