// Statements and mutations that take hours, as on tables a hundred times larger than a test's: they continue as long as they make progress,
// and are ended when they stand still. ClickHouse and the time are simulated here; deletion-rounds.test.ts checks the signs of progress
// with a real ClickHouse.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { type ClickHouseClient, connectClickHouse } from '../../src/clickhouse/client.js';
import { readKeyHashes } from '../../src/clickhouse/key-index.js';
import { whileItProgresses } from '../../src/clickhouse/long-statement.js';
import { deleteRows, MutationFailed } from '../../src/clickhouse/mutate.js';
import type { Time } from '../../src/clickhouse/progress-deadline.js';
import { waits } from '../../src/contract/limits.js';

const minuteMs = 60_000;

/** Time that passes only while somebody waits. */
function simulatedTime(): Time {
  let nowMs = 0;
  return {
    nowMs: () => nowMs,
    pause: async (ms) => {
      nowMs += ms;
      // Everything else that was begun gets a turn.
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

/** A simulated ClickHouse that answers each query with one row, and keeps the other statements. */
function simulatedClickHouse(answer: (query: string) => object | undefined) {
  const commands: string[] = [];
  const client = {
    command: async ({ query }: { query: string }) => void commands.push(query),
    exec: async ({ query }: { query: string }) => {
      const rows = [answer(query)].filter((row) => row !== undefined);
      return { stream: Readable.from([Buffer.from(JSON.stringify(rows))]), response_headers: {} };
    },
  };
  return { client: client as unknown as ClickHouseClient, commands };
}

/** A simulated mutation that is done at a given time and whose progress shows this sign. */
function simulatedMutation({ nowMs }: Time, doneAtMs: number, signAt: (ms: number) => string) {
  return simulatedClickHouse((query) =>
    query.includes('system.merges')
      ? { sign: signAt(nowMs()) }
      : { mutation_id: 'mutation_7.txt', done: nowMs() >= doneAtMs ? 1 : 0, failure: '' },
  );
}

test('a mutation that takes hours is waited for while it makes progress, and is not begun again', async () => {
  const time = simulatedTime();
  const { client, commands } = simulatedMutation(time, 40 * minuteMs, (ms) =>
    String(Math.floor(ms / (9 * minuteMs))),
  );
  assert.equal(
    await deleteRows(client, 'stored_events', { condition: '1', mark: 'mark' }, time),
    'mutation_7.txt',
  );
  assert.ok(time.nowMs() >= 40 * minuteMs);
  assert.deepEqual(commands, ['ALTER TABLE stored_events DELETE WHERE 1']);
});

test('a mutation that stands still for ten minutes is ended', async () => {
  const time = simulatedTime();
  const stopsAtMs = 15 * minuteMs;
  const { client, commands } = simulatedMutation(time, Number.POSITIVE_INFINITY, (ms) =>
    String(Math.min(ms, stopsAtMs)),
  );
  await assert.rejects(
    deleteRows(client, 'stored_events', { condition: '1', mark: 'mark' }, time),
    MutationFailed,
  );
  assert.ok(time.nowMs() >= stopsAtMs + 10 * minuteMs && time.nowMs() < stopsAtMs + 11 * minuteMs);
  assert.match(String(commands[1]), /^KILL MUTATION/);
});

test('a statement that takes hours is waited for while ClickHouse reads rows for it', async () => {
  const time = simulatedTime();
  const { client, commands } = simulatedClickHouse(() => ({ read: String(time.nowMs()), written: '0' }));
  const result = await whileItProgresses(
    client,
    async () => {
      while (time.nowMs() < 10 * waits.clickhouseMsMax) await new Promise((resolve) => setImmediate(resolve));
      return 'done';
    },
    time,
  );
  assert.equal(result, 'done');
  assert.deepEqual(commands, []);
});

for (const [what, row] of [
  ['stands still', { read: '1', written: '0' }],
  ['is gone without an answer', undefined],
] as const) {
  test(`a statement that ${what} is given up and ended`, async () => {
    const time = simulatedTime();
    const { client, commands } = simulatedClickHouse(() => row);
    let isGivenUp = false;
    const never = (_: ClickHouseClient, { abort_signal }: { abort_signal: AbortSignal }) =>
      new Promise<never>((_, reject) => {
        abort_signal.addEventListener('abort', () => {
          isGivenUp = true;
          reject(new Error('aborted'));
        });
      });
    await assert.rejects(whileItProgresses(client, never, time), /made no progress/);
    assert.ok(isGivenUp);
    assert.ok(time.nowMs() >= waits.clickhouseMsMax && time.nowMs() < 2 * waits.clickhouseMsMax);
    assert.equal(commands.length, 1);
    assert.match(String(commands[0]), /^KILL QUERY +WHERE query_id/);
  });
}

test('a statement that fails fails at once', async () => {
  const { client } = simulatedClickHouse(() => assert.fail('nobody asks for its progress'));
  await assert.rejects(
    whileItProgresses(client, async () => Promise.reject(new Error('refused'))),
    /refused/,
  );
});

test('the keys of a shard are not waited for when ClickHouse stands still in the middle of them', async () => {
  const server = createServer(async (request, response) => {
    await text(request);
    response.write('a hash..');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = connectClickHouse({
    url: `http://127.0.0.1:${port}`,
    database: 'sluice',
    requestMsMax: 1_000,
  });
  try {
    const read = async () => {
      for await (const hashes of readKeyHashes(client, 0, 0n, 9n, 2)) assert.equal(hashes.length, 8);
    };
    const stillWaits = new Promise((settle) => setTimeout(settle, 20_000, 'still waits').unref());
    const ended = read().then(
      () => 'came to its end',
      () => 'was given up',
    );
    assert.equal(await Promise.race([ended, stillWaits]), 'was given up');
  } finally {
    await client.close();
    server.closeAllConnections();
    server.close();
  }
});
