// Everything that an account's administrators can make grow has a bound, which leaves room for other accounts. On a real Redis.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { addEnvironment, createAccount, setEnvironment } from '../../src/accounts/accounts.js';
import { createApiKey, rotateApiKey } from '../../src/accounts/api-keys.js';
import { setCallback } from '../../src/accounts/callbacks.js';
import { parseOrigins } from '../../src/accounts/origins.js';
import { createWriteKey } from '../../src/accounts/write-keys.js';
import { administration, callbacks, lengths } from '../../src/contract/limits.js';
import { registryKeys } from '../../src/redis/keys.js';
import { readRegistry } from '../../src/registry/registry.js';
import { startEmptyRegistry } from '../support/empty-registry.js';

const registry = await startEmptyRegistry();
const { redis } = registry;
beforeEach(() => registry.clear());

const account = async (environments: readonly string[] = ['Main']) => {
  const { account_id: accountId, environments: made } = await createAccount(redis, 'Shop', environments);
  return { accountId, appId: String(made[0]?.app_id) };
};
const namesOf = (count: number) => Array.from({ length: count }, (_, n) => `e${n}`);

test('an account can create environments up to the bound; one that has more keeps them', async () => {
  const max = administration.environmentsPerAccountMax;
  const refused = { message: `an account can have ${max} environments` };
  await assert.rejects(account(namesOf(max + 1)), refused);
  const { accountId, appId } = await account(namesOf(max - 1));
  await addEnvironment(redis, accountId, 'the last');
  await assert.rejects(addEnvironment(redis, accountId, 'one too many'), refused);
  await addEnvironment(redis, (await account()).accountId, 'of another account');
  await registry.write({
    'environment:1': { app_id: '1', account_id: accountId, name: 'old', main: false, limits: {} },
  });
  assert.equal((await setEnvironment(redis, appId, { validation: 'lenient' })).validation, 'lenient');
  assert.equal((await setEnvironment(redis, '1', { validation: 'strict' })).validation, 'strict');
});

/** Calls `onReply` with each command of the connection and its reply, before its caller gets it. */
function spy(onReply: (name: string, reply: unknown) => Promise<void> | undefined): () => void {
  const send = redis.sendCommand.bind(redis);
  redis.sendCommand = async (command, ...more) => {
    const reply = await send(command, ...more);
    await onReply(command.name, reply);
    return reply;
  };
  return () => {
    redis.sendCommand = send;
  };
}

const environmentsNamed = (name: string, count: number, account_id: string) =>
  Object.fromEntries(
    Array.from({ length: count }, (_, at) => [
      `environment:${at}`,
      { app_id: String(at), account_id, name, main: false, limits: {} },
    ]),
  );

test('the registry is read again only after a change, and no reply has more than a few hundred documents', async () => {
  const { accountId } = await account();
  await registry.write(environmentsNamed('e', 3_000, accountId));
  const commands = new Set<string>();
  const stop = spy((name, reply) => {
    commands.add(name);
    if (name === 'hscan') assert.ok((reply as [string, string[]])[1].length <= 2 * 300);
    return undefined;
  });
  try {
    const first = await readRegistry(redis);
    assert.equal(first.environments.size, 3_001);
    assert.deepEqual(commands, new Set(['mget', 'hlen', 'hscan']));
    commands.clear();
    assert.equal(await readRegistry(redis), first);
    assert.deepEqual(commands, new Set(['mget']));
  } finally {
    stop();
  }
  await account();
  assert.equal((await readRegistry(redis)).environments.size, 3_002);
});

for (const aheadUs of [0, 60_000_000]) {
  const where = aheadUs === 0 ? 'which follows the clock' : 'which is ahead of the clock';
  test(`no version of the registry, ${where}, is given twice, also by a Redis that has lost its last second`, async (context) => {
    const { accountId } = await account();
    const other = redis.duplicate();
    context.after(() => other.disconnect());
    const version = String(Date.now() * 1000 + aheadUs);
    await redis.set(registryKeys.version, version);
    const documents = await redis.hgetall(registryKeys.documents);
    await addEnvironment(redis, accountId, 'lost');
    const namesOfAll = async () =>
      [...(await readRegistry(other)).environments.values()].map(({ name }) => name);
    assert.ok((await namesOfAll()).includes('lost'));
    await redis.multi().set(registryKeys.version, version).del(registryKeys.documents).exec();
    await redis.hset(registryKeys.documents, documents);
    await addEnvironment(redis, accountId, 'again');
    const names = await namesOfAll();
    assert.deepEqual([names.includes('lost'), names.includes('again')], [false, true]);
  });
}

test('documents that are changed together are read together, however often they change meanwhile', async () => {
  const { accountId } = await account();
  for (const changesMax of [1, Number.POSITIVE_INFINITY]) {
    await registry.write(environmentsNamed('0', 600, accountId));
    let changes = 0;
    const stop = spy(async (name) => {
      if (name !== 'hscan' || changes >= changesMax) return;
      changes += 1;
      await registry.write(environmentsNamed(String(changes), 600, accountId));
    });
    try {
      const environments = [...(await readRegistry(redis)).environments.values()];
      const names = environments.flatMap(({ app_id, name }) => (Number(app_id) < 600 ? [name] : []));
      assert.ok(changes > 0);
      assert.deepEqual(new Set(names), new Set([String(changes)]));
    } finally {
      stop();
    }
  }
});

test('an environment allows identities up to the bound; a longer list can only become shorter', async () => {
  const { appId } = await account();
  const max = administration.allowedIdentitiesMax;
  const allow = (...allowIdentities: string[]) => setEnvironment(redis, appId, { allowIdentities });
  const longest = '🙂'.repeat(lengths.identityMax);
  for (const bad of ['', `${longest}x`])
    await assert.rejects(allow('guest', bad), /must have 1 to 255 characters/);
  await allow(longest, ...namesOf(max - 2));
  await allow('guest');
  await allow('guest');
  await assert.rejects(allow('one too many'), /can allow 100 identities: disallow one first/);
  assert.equal((await setEnvironment(redis, appId, {})).allowed_identities?.length, max);

  const { environments } = await readRegistry(redis);
  const long = ['', ...namesOf(3 * max)];
  await registry.write({
    [`environment:${appId}`]: { ...environments.get(appId), allowed_identities: long },
  });
  await assert.rejects(allow('guest'), /disallow one first/);
  const kept = await setEnvironment(redis, appId, { retainDays: 7 });
  assert.deepEqual([kept.allowed_identities, kept.retain_days], [long, 7]);
  const shorter = await setEnvironment(redis, appId, {
    allowIdentities: ['guest'],
    disallowIdentities: ['', 'e0'],
  });
  assert.equal(shorter.allowed_identities?.length, long.length - 1);
});

test('an environment lists origins up to the bound, none longer than a host name can be', () => {
  const origins = namesOf(administration.originsMax).map((name) => `https://${name}.example.com`);
  assert.deepEqual(parseOrigins(origins), origins);
  assert.throws(() => parseOrigins([...origins, 'https://more.example.com']), /can list 100 origins/);
  const longest = `https://${'a'.repeat(administration.originMax - 'https://'.length)}`;
  assert.deepEqual(parseOrigins([longest]), [longest]);
  assert.throws(() => parseOrigins([`${longest}a`]), /at most 300 characters/);
});

test('the length of a callback’s URL is bounded, and an account has one callback', async () => {
  const { accountId } = await account();
  const longest = `https://example.com/${'a'.repeat(callbacks.urlMax - 'https://example.com/'.length)}`;
  const set = (url: string) => setCallback(redis, accountId, url, async () => false);
  await set(longest);
  await assert.rejects(set(`${longest}a`), /at most 2048 characters/);
  await set('https://example.com/');
  assert.equal((await readRegistry(redis)).callbacks.size, 1);
});

test('the bytes of an account’s settings and keys are bounded, and those of another account do not count', async () => {
  const { accountId, appId } = await account(['Main', 'Full']);
  const other = await account();
  const { environments } = await readRegistry(redis);
  const full = [...environments.values()].find(({ name }) => name === 'Full');
  const withWords = (bytes: number) =>
    registry.write({ [`environment:${full?.app_id}`]: { ...full, allowed_identities: ['x'.repeat(bytes)] } });
  const additions: (() => Promise<unknown>)[] = [
    () => addEnvironment(redis, accountId, 'More'),
    () => setEnvironment(redis, appId, { allowIdentities: ['guest'] }),
    () => setEnvironment(redis, appId, { origins: ['https://shop.example.com'] }),
    () => createApiKey(redis, appId, 'one'),
    () => rotateApiKey(redis, appId, { overlapMs: 60_000 }),
    () => createWriteKey(redis, appId, 'one'),
  ];
  // This key is shorter than any that the service makes.
  const short = { id: 'x', name: '', hash: 'x', created_at: '' };
  await registry.write({ [`api_key:${appId}`]: { app_id: appId, keys: [short] } });
  await withWords(administration.accountBytesMax);
  for (const add of additions) await assert.rejects(add(), /can take 2 MiB: remove some first/);
  await createApiKey(redis, other.appId);
  await rotateApiKey(redis, appId);
  await setEnvironment(redis, appId, { validation: 'lenient' });
  await setEnvironment(redis, appId, { disallowIdentities: ['none'], origins: 'any' });
  await withWords(administration.accountBytesMax - 10_000);
  for (const add of additions) await add();
});
