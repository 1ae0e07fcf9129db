// Deletion of users whom only the client library has named: by their user_id or their identity, with the properties that
// they had while they were anonymous, and without touching anybody else.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answersOf, event, type Fields, identify, storeAll, userProperties } from '../harness/collect.js';
import {
  assertExact,
  deleteNow,
  dumpTables,
  readFound,
  type User,
  untilStored,
} from '../harness/deletion.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { withRedis } from '../harness/redis-client.js';
import { deletionWorld } from '../support/deletion-world.js';
import { keysWith } from '../support/traces.js';

const { sluice, token, main } = await deletionWorld();

type Fate = 'go' | 'stay';

/** What a device sends: each type of message under its user_id, and then, if there is an identity, the identification. */
function deviceMessages(fate: Fate, userId: string, identity?: string): Fields[] {
  const anonymous = { user_id: userId };
  const messages = [
    event({ ...anonymous, properties: { fate } }),
    userProperties({ fate, plan: 'free' }, anonymous),
    userProperties({ fate, seen: 1 }, anonymous),
  ];
  if (identity === undefined) return messages;
  const identified = { ...anonymous, identity };
  return [
    ...messages,
    identify(userId, identity),
    event({ ...identified, properties: { fate } }),
    userProperties({ fate, plan: 'pro' }, identified),
  ];
}

async function assertDeletes(
  target: User,
  goes: readonly Fields[],
  stays: readonly Fields[],
  identificationsToGo: readonly string[],
  found: Readonly<Record<string, number>>,
): Promise<void> {
  await storeAll(sluice.baseUrl, main, [...stays, ...goes]);
  await untilStored(sluice);
  const before = await dumpTables(sluice);
  const requestId = await deleteNow(sluice, token, [target]);
  await untilStored(sluice);
  assertExact(before, await dumpTables(sluice), new Set(identificationsToGo), {});
  assert.deepEqual(await readFound(sluice, requestId), found);
  // Once Redis has forgotten the messages' ids, only the index can know them, and their rows are gone.
  const after = await dumpTables(sluice);
  await withRedis(sluice, forgetKeys);
  await answersOf(sluice.baseUrl, main, goes);
  await untilStored(sluice);
  assert.deepEqual(await dumpTables(sluice), after);
}

test('deletes an anonymous user by the user_id, with the properties set under it', async () => {
  await assertDeletes(
    { user_id: 1001 },
    deviceMessages('go', '1001'),
    [...deviceMessages('stay', '10010'), ...deviceMessages('stay', '1002', '1001')],
    [],
    { [`${main} stored_events`]: 1, [`${main} stored_user_properties`]: 2 },
  );
});

for (const by of ['identity', 'user_id'] as const) {
  test(`deletes an identified user by the ${by}, with everything from before the identification and from every device`, async () => {
    const [phone, laptop, other] = by === 'identity' ? ['2001', '2002', '2003'] : ['3001', '3002', '3003'];
    const identity = `someone-${by}@example.com`;
    await assertDeletes(
      by === 'identity' ? { identity } : { user_id: Number(laptop) },
      [...deviceMessages('go', phone, identity), ...deviceMessages('go', laptop, identity)],
      deviceMessages('stay', other, `${identity}x`),
      [`${main} ${phone} ${identity}`, `${main} ${laptop} ${identity}`],
      {
        [`${main} stored_events`]: 4,
        [`${main} stored_user_properties`]: 6,
        [`${main} stored_user_identities`]: 2,
      },
    );
    assert.deepEqual(await keysWith(sluice, identity), [], 'Redis holds the identity');
  });
}
