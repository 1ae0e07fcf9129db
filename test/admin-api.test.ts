import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type SluiceHandle, startSluice } from './support/services.js';

let sluice: SluiceHandle;

before(async () => {
  sluice = await startSluice({ env: { ADMIN_TOKEN: 'the-token-of-the-test' } });
});

after(async () => {
  await sluice?.stop();
});

type Answer = {
  readonly status: number;
  readonly body: Record<string, unknown> & unknown[];
  readonly text: string;
};

async function ask(
  method: string,
  path: string,
  body?: object,
  token = 'the-token-of-the-test',
): Promise<Answer> {
  const response = await fetch(`${sluice.adminUrl}/admin/v1${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, body: JSON.parse(text) as Answer['body'], text };
}

test('answers 401 with the same bytes to every caller without the token', async () => {
  const paths = ['/accounts', '/environments/1/key', '/deletions/x'];
  const answers = await Promise.all(
    paths.flatMap((path) => [ask('GET', path, undefined, 'wrong'), ask('GET', path, undefined, '')]),
  );
  assert.ok(answers.every(({ status }) => status === 401));
  assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
});

test('does over HTTP what the command line does', async () => {
  const created = await ask('POST', '/accounts', {
    name: 'shop',
    environments: ['Main Production', 'Staging'],
  });
  assert.equal(created.status, 200);
  const accountId = String(created.body.account_id);
  const added = await ask('POST', `/accounts/${accountId}/environments`, { name: 'Test' });
  const appId = String(added.body.app_id);
  const set = await ask('PATCH', `/environments/${appId}`, {
    main: true,
    validation: 'lenient',
    limits: { track: 'none', bulk_app: 5 },
    allow_identities: ['guest'],
  });
  assert.deepEqual(
    [set.body.main, set.body.validation, set.body.limits, set.body.allowed_identities],
    [true, 'lenient', { track: 'none', bulk_app: 5 }, ['guest']],
  );
  const listed = (await sluice.admin('accounts', 'list')) as {
    account_id: string;
    environments: { app_id: string; main: boolean }[];
  }[];
  const shop = listed.find((account) => account.account_id === accountId);
  assert.equal(shop?.environments.length, 3);
  assert.deepEqual(
    shop?.environments.filter(({ main }) => main).map(({ app_id }) => app_id),
    [appId],
  );
});

test('shows an API key at its creation only', async () => {
  const { body } = await ask('POST', '/accounts', { name: 'keys', environments: ['Main Production'] });
  const [environment] = body.environments as { app_id: string }[];
  const path = `/environments/${environment?.app_id}/key`;
  assert.equal((await ask('GET', path)).body.created_at, null);
  const created = await ask('POST', path);
  assert.match(String(created.body.api_key), /^slk_/);
  assert.equal((await ask('POST', path)).status, 400, 'there is one already');
  const rotated = await ask('PUT', path);
  assert.notEqual(rotated.body.api_key, created.body.api_key);
  assert.doesNotMatch((await ask('GET', path)).text, /slk_/);
  assert.deepEqual((await ask('DELETE', path)).body, { app_id: environment?.app_id, revoked: true });
  assert.equal((await ask('GET', path)).body.created_at, null);
});

test('refuses what cannot be done with 400 and a reason, and changes nothing', async () => {
  const before = (await ask('GET', '/accounts')).text;
  const refused: [string, string, object | undefined][] = [
    ['POST', '/accounts', {}],
    ['POST', '/accounts', { name: 'x', environments: [] }],
    ['POST', '/accounts', { name: '--environment', environments: ['Main'] }],
    ['POST', '/accounts', { name: 'x', environments: ['Main', 'Main'] }],
    ['POST', '/accounts/9/environments', { name: 'x' }],
    ['PATCH', '/environments/9', { validation: 'lenient' }],
    ['PATCH', '/environments/9', { nonsense: 1 }],
    ...[{ toString: 1 }, [5], [], null, true, {}, 1e300, -1, '--main'].map(
      (max): [string, string, object] => [
        'PATCH',
        `/environments/${sluice.appId}`,
        { limits: { track: max } },
      ],
    ),
    ...[{ '--main': 1 }, { '--limit': 'none' }, { toString: 1 }, ['track=5'], { 'track=5': 6 }].map(
      (limits): [string, string, object] => ['PATCH', `/environments/${sluice.appId}`, { limits }],
    ),
    ['PATCH', `/environments/${sluice.appId}`, { limits: 'track=5' }],
    ['PATCH', `/environments/${sluice.appId}`, { validation: { toString: 1 } }],
    ['PATCH', `/environments/${sluice.appId}`, { allow_identities: [{ toString: 1 }] }],
    ['POST', '/accounts', { name: { toString: 1 }, environments: ['Main'] }],
    ['POST', '/environments/9/key', undefined],
    ['GET', '/deletions/none', undefined],
  ];
  for (const [method, path, body] of refused) {
    const { status, text } = await ask(method, path, body);
    assert.equal(status, 400, `${method} ${path} ${JSON.stringify(body)}: ${text}`);
    assert.match(text, /"err":\{"message":"[^"]+","code":"not_possible"/);
  }
  assert.equal((await ask('GET', '/accounts')).text, before);
  assert.equal((await ask('PUT', '/accounts')).status, 405);
});
