// Whose allowance a large body at the endpoints of servers takes from.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type RateLimit, rateLimitOf } from '../../src/contract/limits.js';
import { largeBodiesOfServers } from '../../src/http/endpoints/byte-allowance.js';
import type { Exchange } from '../../src/http/protocol/exchange.js';
import type { LiveEnvironment } from '../../src/registry/environments.js';
import { hashSecret } from '../../src/registry/secrets.js';

const MiB = 1024 * 1024;
const addressBytesMax = 40 * MiB;

const environment = (appId: string, limit: RateLimit | undefined) =>
  ({ appId, limits: { app_bytes: limit } }) as unknown as LiveEnvironment;
const byKey: Readonly<Record<string, LiveEnvironment>> = {
  hostile: environment('1', rateLimitOf('app_bytes', 32 * MiB)),
  other: environment('2', rateLimitOf('app_bytes', 64 * MiB)),
};
const importing = environment('3', undefined);

function makeRule() {
  return largeBodiesOfServers(addressBytesMax, {
    ofWriteKey: (key) => byKey[key],
    ofImport: (hash) => (hash === hashSecret('token') ? importing : undefined),
  });
}

type Sender = {
  readonly address?: string;
  readonly authorization?: string;
  readonly importToken?: string;
  readonly encoding?: string;
};

const exchange = ({ address = '203.0.113.1', ...framing }: Sender) =>
  ({ address, framing: { encoding: 'identity', ...framing } }) as unknown as Exchange;

/** How many of some bodies pass at once. */
function passing(rule: ReturnType<typeof makeRule>, sender: Sender, count = 12, bytes = 10 * MiB): number {
  const taken = Array.from({ length: count }, () => rule(exchange(sender), bytes));
  return taken.filter(({ waitMs }) => waitMs === 0).length;
}

const basic = (text: string) => `Basic ${btoa(text)}`;

test('a key lifts the allowance of its address up to that of its own environment, however it is sent and from wherever', () => {
  const rule = makeRule();
  assert.equal(passing(rule, { authorization: 'Bearer hostile' }), 3);
  const again = ['Bearer hostile', basic('hostile:'), basic('2:hostile')];
  for (const authorization of again)
    assert.equal(passing(rule, { authorization, address: '198.51.100.9' }), 0, authorization);
  assert.equal(rule(exchange({ authorization: 'Bearer hostile' }), 10 * MiB).limit, 'app_bytes');
});

test('nobody uses up another’s allowance: neither other keys nor strangers at the same address, nor a key that of strangers', () => {
  const rule = makeRule();
  passing(rule, { authorization: 'Bearer hostile' });
  assert.equal(passing(rule, {}), 4);
  assert.equal(passing(rule, { authorization: 'Bearer wrong' }), 0, 'as a stranger');
  assert.equal(passing(rule, { importToken: 'wrong' }), 0, 'as a stranger');
  assert.equal(passing(rule, { authorization: 'Bearer other' }), 6);
  assert.equal(passing(rule, { importToken: 'token' }), 12, 'no limit');
});

test('small bodies count only if they are compressed', () => {
  const rule = makeRule();
  assert.equal(passing(rule, {}, 2_000, 60_000), 2_000);
  assert.ok(passing(rule, { encoding: 'gzip' }, 2_000, 60_000) < 2_000);
});

test('a body beyond all that its environment may send passes when nothing is taken yet: the limits decide about its records', () => {
  const rule = makeRule();
  assert.equal(passing(rule, { authorization: 'Bearer hostile' }, 1, 100 * MiB), 1);
  assert.equal(passing(rule, { authorization: 'Bearer hostile' }, 1, 10 * MiB), 0);
});
