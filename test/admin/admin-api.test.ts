// The administration over HTTP: who may call it, what it answers, and that it does what the command line does.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { readConfig } from '../../src/config.js';
import { lengths } from '../../src/contract/lengths.js';
import { administration, bearerMax } from '../../src/contract/limits.js';
import { operatorsToken } from '../harness/configured.js';
import { readMetric } from '../harness/fault-checks.js';
import { isAccepted, paths, post } from '../harness/ingestion.js';
import type { ApiHandle } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

const rightToken = operatorsToken;

const sluice = await ownSluice({ env: { ADMIN_TOKEN: rightToken } });

type Answer = {
  readonly status: number;
  readonly body: Record<string, unknown> & unknown[];
  readonly text: string;
};

async function ask(method: string, path: string, body?: object, token = rightToken): Promise<Answer> {
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

test('answers wrong tokens late, counts and logs them, and never lets the right one wait for them', async () => {
  const refused = async () =>
    (await readMetric(sluice.api[0] as ApiHandle, 'sluice_admin_tokens_refused_total')) ?? 0;
  const before = await refused();
  let tries = 0;
  let isFirst = false;
  // If the machine pauses for as long as wrong tokens wait, the order of the answers shows nothing, and all are sent again.
  for (; tries < 5 && !isFirst; tries += 1) {
    const startedAt = performance.now();
    const wrong = Array.from({ length: 60 }, async (_, number) => {
      const { status } = await ask('GET', '/accounts', undefined, `wrong${number}`);
      return { status, ms: performance.now() - startedAt };
    });
    for (let number = 0; number < 5; number += 1) assert.equal((await ask('GET', '/accounts')).status, 200);
    const rightMs = performance.now() - startedAt;
    const answers = await Promise.all(wrong);
    assert.ok(answers.every(({ status, ms }) => status === 401 && ms >= administration.wrongTokenMs - 50));
    isFirst = rightMs < Math.min(...answers.map(({ ms }) => ms));
  }
  assert.ok(isFirst, 'the right one waited for the wrong ones');
  assert.equal((await refused()) - before, 60 * tries);
  await until(
    async () => /"count":\d+,"msg":"wrong ADMIN_TOKENs were refused"/.test(sluice.api[0]?.output() ?? ''),
    'the refusals are logged',
  );
  assert.doesNotMatch(sluice.api[0]?.output() ?? '', /wrong\d/);
});

test('a start refuses tokens that are short, repeated, placeholders, or can never be sent', () => {
  const random = 'Yl3v9QmT4zRk8sWc1xNb6pGh2jFd7aUe';
  const longest = `${random.repeat(7).slice(0, bearerMax - 1)}==`;
  for (const ADMIN_TOKEN of ['', random, random.replace('Y', '~'), longest]) {
    assert.equal(readConfig({ ADMIN_TOKEN }).adminToken, ADMIN_TOKEN);
  }
  for (const [ADMIN_TOKEN, why] of [
    [random.slice(1), /at least 32 characters/],
    ['secret', /ADMIN_TOKEN must/],
    ['REPLACE_ME', /not a placeholder/],
    ['change-me-change-me-change-me-change-me', /not a placeholder/],
    ['a'.repeat(64), /not a placeholder/],
    ['abcabcabcabcabcabcabcabcabcabcabcabc', /not a placeholder/],
    [`${random} `, /a header carries no others/],
    [`${random}ä`, /a header carries no others/],
    [`=${random}`, /a header carries no others/],
    [random.repeat(7), /a header carries no others/],
  ] as const) {
    assert.throws(
      () => readConfig({ ADMIN_TOKEN }),
      (error: Error) => {
        assert.match(error.message, why);
        return !error.message.includes(ADMIN_TOKEN);
      },
    );
  }
});

test('the demo is refused unless everything listens on loopback addresses', () => {
  for (const env of [{}, { HOST: 'localhost' }, { HOST: '::1', ADMIN_HOST: '127.0.0.2' }]) {
    assert.equal(readConfig({ ...env, DEMO: '1' }).demo, true);
  }
  for (const env of [
    { HOST: '0.0.0.0' },
    { ADMIN_HOST: '::' },
    { HOST: '10.0.0.1' },
    { HOST: '127.0.0.1.example.com' },
  ]) {
    assert.throws(() => readConfig({ ...env, DEMO: '1' }), /DEMO must be 0 unless HOST and ADMIN_HOST/);
    assert.equal(readConfig(env).demo, false);
  }
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

test('accepts the name of an event up to its greatest length, even where a URL would be too long', async () => {
  const of = `/environments/${sluice.appId}`;
  const longest = '事'.repeat(lengths.eventMax);
  const sent = { app_id: sluice.appId, identity: 'ada', event: longest, properties: { size: 1 } };
  assert.ok(isAccepted(await post(sluice.baseUrl, paths.track, sent)));
  const properties = await until(async () => {
    const answer = await ask('POST', `${of}/event-properties`, { event: longest });
    assert.equal(answer.status, 200, answer.text);
    return answer.body.length > 0 && answer.body;
  }, 'the event is stored');
  assert.deepEqual(
    properties.map((each) => (each as { property: string }).property),
    ['size'],
  );
  const same = await ask('POST', `${of}/event-properties`, { event: longest, days: 30 });
  assert.deepEqual(same.body, properties);
  const found = await ask('POST', `${of}/user/events`, { identity: 'ada', event: longest });
  assert.deepEqual(
    (found.body.events as { event: string }[]).map(({ event }) => event),
    [longest],
  );
  for (const event of [`${longest}事`, '%'.repeat(44_000)]) {
    for (const path of [`${of}/event-properties`, `${of}/user/events`]) {
      const body = path.endsWith('events') ? { identity: 'ada', event } : { event };
      const { status, text } = await ask('POST', path, body);
      assert.equal(status, 400, `${path}: ${text}`);
      assert.match(text, /event must have at most 1024 characters","code":"not_possible"/);
    }
  }
});

test('refuses a parameter that it does not know, and a state that no deletion has', async () => {
  for (const query of ['account=1', 'limit=1', 'stat=complete', 'state=targets-lost', 'state=nope']) {
    const { status, text } = await ask('GET', `/deletions?${query}`);
    assert.equal(status, 400, `${query}: ${text}`);
  }
  await assert.rejects(sluice.admin('deletions', 'list', '--state', 'nope'), /targets_lost/);
});

test('refuses a query that is not text in UTF-8', async () => {
  for (const query of ['event=%FF', 'event=a&days=%', 'event=a&%C3=1']) {
    const { status, text } = await ask('GET', `/environments/${sluice.appId}/event-properties?${query}`);
    assert.equal(status, 400, text);
    assert.match(text, /"invalid_parameter"/);
  }
});

test('sets a limit from the command line only if everything after its name is its value', async () => {
  const limitsOf = async () =>
    ((await sluice.admin('environments', 'set', sluice.appId)) as { limits: object }).limits;
  const before = await limitsOf();
  for (const limit of ['track=5=6', 'track=5=', 'track==5', 'track=', 'track', '=5', 'toString=5']) {
    await assert.rejects(
      sluice.admin('environments', 'set', sluice.appId, '--limit', limit),
      /the limit track must be|there is no limit/,
      limit,
    );
  }
  assert.deepEqual(await limitsOf(), before);
});

test('accepts a whole number as the length of a list, and refuses anything else', async () => {
  for (const limit of ['abc', '0', '-1', '1.5', '']) {
    for (const list of ['failed', 'deletions']) {
      await assert.rejects(
        sluice.admin(list, 'list', '--limit', limit),
        /--limit must be a whole number/,
        limit,
      );
    }
  }
  assert.deepEqual(await sluice.admin('deletions', 'list', '--limit', '1'), []);
});

test('refuses words that name no command, even if every JavaScript object has a property of that name', async () => {
  for (const word of ['constructor', 'toString', 'accounts', 'keys remove']) {
    await assert.rejects(sluice.admin(...word.split(' ')), /there is no command/, word);
  }
});

test('an account with as many environments as it can have is shown like any other', async () => {
  const environments = Array.from({ length: administration.environmentsPerAccountMax }, (_, n) => `e${n}`);
  const { status, body } = await ask('POST', '/accounts', { name: 'Large', environments });
  assert.equal(status, 200);
  const accountId = String(body.account_id);
  assert.equal((await ask('POST', `/accounts/${accountId}/environments`, { name: 'more' })).status, 400);
  for (const path of ['overview', 'traffic'])
    assert.equal((await ask('GET', `/accounts/${accountId}/${path}`)).status, 200, path);
  const audit = await ask('GET', `/audit?account_id=${accountId}`);
  assert.deepEqual([audit.status, audit.body.length], [200, 2]);
  const suppressed = { users: [{ identity: 'a' }], suppress: true };
  assert.equal((await ask('POST', `/accounts/${accountId}/user_suppression`, suppressed)).status, 200);
});

test('says that it does not know whether rows were refused when it cannot count them', async () => {
  const problems = async () => {
    const path = `/accounts/${sluice.bootstrap.account_id}/overview`;
    return (await ask('GET', path)).body.problems as string[];
  };
  const unknown = 'it is not known whether ClickHouse has refused rows';
  const clickhouse = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
  await clickhouse.command({ query: 'RENAME TABLE failed_events TO away' });
  try {
    assert.ok((await problems()).includes(unknown));
    assert.match(sluice.api[0]?.output() ?? '', /UNKNOWN_TABLE.*"msg":"refused rows cannot be counted"/);
  } finally {
    await clickhouse.command({ query: 'RENAME TABLE away TO failed_events' });
    await clickhouse.close();
  }
  assert.ok(!(await problems()).includes(unknown));
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
  const misplaced = await ask('DELETE', `${path}?id=${rotated.body.id}`);
  assert.match(misplaced.text, /"invalid_parameter"/, 'an id belongs into the path; all keys would end');
  assert.deepEqual((await ask('DELETE', path)).body, { app_id: environment?.app_id, revoked: true });
  assert.equal((await ask('GET', path)).body.created_at, null);
});

test('accepts names that begin with two dashes, which are options only on a command line', async () => {
  const { status, body } = await ask('POST', '/accounts', {
    name: '--environment',
    environments: ['--main'],
  });
  assert.equal(status, 200, JSON.stringify(body));
  assert.match(JSON.stringify(body), /"name":"--main"/);
});

test('refuses an impossible command with 400 and a reason, and changes nothing', async () => {
  const before = (await ask('GET', '/accounts')).text;
  const refused: [string, string, object | undefined][] = [
    ['POST', '/accounts', {}],
    ['POST', '/accounts', { name: 'x', environments: [] }],
    ['POST', '/accounts', { name: 'x', environments: ['Main', 'Main'] }],
    ['POST', '/accounts/9/environments', { name: 'x' }],
    ['PATCH', '/environments/9', { validation: 'lenient' }],
    ['PATCH', '/environments/9', { nonsense: 1 }],
    ...[{ toString: 1 }, [5], [], null, true, {}, 1e300, -1, 0, 1.5, '0', '--main'].map(
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
    ['GET', '/environments/9/stats', undefined],
  ];
  for (const [method, path, body] of refused) {
    const { status, text } = await ask(method, path, body);
    assert.equal(status, 400, `${method} ${path} ${JSON.stringify(body)}: ${text}`);
    assert.match(text, /"err":\{"message":"[^"]+","code":"not_possible"/);
  }
  assert.equal((await ask('GET', '/accounts')).text, before);
  assert.equal((await ask('PUT', '/accounts')).status, 405);
});
