// The limit of calls that set user properties at POST /api/collect. Only the messages above it are refused, and the rest of
// their request is stored. Repeats do not count, and the limits of other endpoints are separate.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { rateLimits } from '../../src/contract/limits.js';
import { createEnvironments } from '../harness/accounts.js';
import { answersOf, event, type Fields, identify, userProperties } from '../harness/collect.js';
import { readMetric } from '../harness/fault-checks.js';
import { paths, post, untilStored } from '../harness/ingestion.js';
import fc from '../support/fast-check.js';
import { sharedSluice } from '../support/sluice.js';

const { max, windowMs } = rateLimits.user_properties;
const small = 3;

const sluice = await sharedSluice();
const [contract = '', limited = '', unlimited = ''] = await createEnvironments(sluice, [
  [],
  ['--limit', `user_properties=${small}`],
  ['--limit', 'user_properties=none'],
]);

let sent = 0;
/** Sends to the API processes in turn. */
function send(appId: string, messages: readonly unknown[]) {
  sent += 1;
  return answersOf(sluice.api[sent % sluice.api.length]?.baseUrl ?? '', appId, messages);
}

const repeat = <T>(count: number, make: (index: number) => T) =>
  Array.from({ length: count }, (_, i) => make(i));
const of = (user: Fields) => userProperties({ plan: 'pro' }, user);

function assertSeconds(retryAfter: number | undefined): number {
  assert.ok(Number.isInteger(retryAfter) && (retryAfter ?? 0) >= 1, `retry_after is ${retryAfter}`);
  assert.ok((retryAfter ?? 0) <= windowMs / 1000 + 1);
  return retryAfter ?? 0;
}

describe('the limit of user properties', () => {
  test('is 30 in 30 s: of 40 in one request the answer names 10, and the rest is stored', async () => {
    const messages = repeat(40, (n) => [
      event({ user_id: '100', event: `${n}` }),
      of({ user_id: '100' }),
    ]).flat();
    messages.push(identify('100', 'someone@example.com'));
    const answers = await send(contract, messages);
    assert.equal(max, 30);
    for (const [index, { id, status, code, retry_after, ...rest }] of answers.entries()) {
      assert.equal(id, messages[index]?.id);
      assert.deepEqual(rest, {});
      const over: boolean = messages[index]?.type === 'user_properties' && index > 2 * max;
      assert.equal(status, over ? 'limited' : 'stored', `${index}`);
      assert.equal(code, over ? 'rate_limited' : undefined);
      if (over) assertSeconds(retry_after);
    }
    await untilStored(sluice);
    const [rows] = await sluice.rows<{ events: number; calls: number }>(`SELECT
      (SELECT toUInt32(count()) FROM events WHERE app_id = '${contract}' AND user_id = 100) AS events,
      (SELECT toUInt32(count()) FROM user_properties WHERE app_id = '${contract}' AND user_id = 100) AS calls`);
    assert.deepEqual(rows, { events: 40, calls: 30 });
    const counted = await Promise.all(
      sluice.api.map((one) => readMetric(one, 'sluice_requests_limited_total')),
    );
    assert.ok(counted.some((count) => (count ?? 0) >= 10));
  });

  test('counts an identity, whatever the user_id, apart from the user_id and from other users', async () => {
    const take = async (user: (n: number) => Fields) => {
      const answers = await send(
        limited,
        repeat(small + 1, (n) => of(user(n))),
      );
      assert.deepEqual(
        answers.map(({ status }) => status),
        [...repeat(small, () => 'stored'), 'limited'],
      );
    };
    await take((n) => ({ user_id: `${300 + n}`, identity: 'ada' }));
    await take(() => ({ user_id: '300' }));
    await take(() => ({ user_id: '301' }));
    await take(() => ({ user_id: '300', identity: '300' }));
  });

  test('counts apart from the limit of /api/add_user_properties', async () => {
    const identity = 'apart';
    const server = () =>
      post(sluice.baseUrl, paths.userProperties, { app_id: limited, identity, properties: { a: 1 } });
    const answers = await send(
      limited,
      repeat(small + 1, () => of({ identity })),
    );
    assert.equal(answers.at(-1)?.status, 'limited');
    for (let n = 0; n < small; n += 1) assert.equal((await server()).status, 200);
    assert.equal((await server()).status, 429);
  });

  test('does not count repeats, so that a lost answer costs nothing', async () => {
    const user = { user_id: '400' };
    const first = repeat(small - 1, () => of(user));
    await send(limited, first);
    for (let round = 0; round < 5; round += 1) {
      const answers = await send(limited, first);
      assert.ok(
        answers.every(({ status }) => status === 'repeat'),
        'with room',
      );
    }
    const last = of(user);
    const [stored, twin, over] = await send(limited, [last, last, of(user)]);
    assert.deepEqual([stored?.status, twin?.status, over?.status], ['stored', 'repeat', 'limited']);
    const answers = await send(limited, [...first, last]);
    assert.ok(
      answers.every(({ status }) => status === 'repeat'),
      'without room',
    );
  });

  test('does not hold where it is switched off, and never for events and identifications', async () => {
    const user = { user_id: '500' };
    const kinds = [of, (fields: Fields) => event(fields), () => identify('500', 'x')];
    for (const kind of kinds) {
      const answers = await send(
        unlimited,
        repeat(100, () => kind(user)),
      );
      assert.ok(answers.every(({ status }) => status === 'stored'));
    }
    const events = await send(
      limited,
      repeat(100, () => event(user)),
    );
    assert.ok(events.every(({ status }) => status === 'stored'));
  });

  test('answers random requests like a model that counts what it stored', async () => {
    let run = 0;
    const step = fc.record({
      user: fc.integer({ min: 0, max: 2 }),
      id: fc.integer({ min: 0, max: 12 }),
      kind: fc.constantFrom('event', 'call', 'call', 'bad'),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(step, { minLength: 1, maxLength: 12 }), { minLength: 1, maxLength: 6 }),
        async (requests) => {
          run += 1;
          const claimed = new Set<number>();
          const used = [0, 0, 0];
          for (const steps of requests) {
            const expected = steps.map(({ user, id, kind }) => {
              if (kind === 'bad') return 'rejected';
              if (claimed.has(id)) return 'repeat';
              if (kind === 'call' && (used[user] ?? 0) >= small) return 'limited';
              if (kind === 'call') used[user] = (used[user] ?? 0) + 1;
              claimed.add(id);
              return 'stored';
            });
            const messages = steps.map(({ user, id, kind }) => {
              const fields = { id: `model-${run}-${id}`, user_id: `${run * 10 + user + 1_000_000}` };
              if (kind === 'bad') return event({ ...fields, event: '' });
              return kind === 'event' ? event(fields) : of(fields);
            });
            assert.deepEqual(
              (await send(limited, messages)).map(({ status }) => status),
              expected,
            );
          }
        },
      ),
      { numRuns: 60, interruptAfterTimeLimit: 15_000 },
    );
  });
});
