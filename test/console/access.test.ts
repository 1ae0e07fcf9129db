// Who may do what over HTTP: every role at every endpoint of the administration, for its own account and for another one.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import type { TSchema } from 'typebox';
import { type CommandName, commands, forConsole } from '../../src/admin/commands.js';
import type { Role } from '../../src/contract/roles.js';
import { Compile } from '../../src/contract/typebox.js';
import { type AdminApiOptions, adminApiRoutes } from '../../src/http/endpoints/admin-api.js';
import type { AdminCallers } from '../../src/http/endpoints/admin-caller.js';
import { certificateCheckRoute } from '../../src/http/endpoints/certificate-check.js';
import type { SignInOptions } from '../../src/http/endpoints/console-session.js';
import { accountDeletionRoute } from '../../src/http/endpoints/deletion-submission.js';
import { signInRoutes } from '../../src/http/endpoints/sign-in-routes.js';
import { type SignOnOptions, signOnRoutes } from '../../src/http/endpoints/sign-on.js';
import type { UserRequestOptions } from '../../src/http/endpoints/token-caller.js';
import { accountExportRoute } from '../../src/http/endpoints/user-export.js';
import type { AuditEntry } from '../../src/registry/audit/read.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { until } from '../harness/wait.js';
import { ConsolePage, password, signedIn } from '../support/console.js';
import { ownSluice } from '../support/sluice.js';

const pages = new Map<Role, ConsolePage>();
const deletions = new Map<TestAccount, string>();
type CheckAnswer = (method: string, path: string, status: number, answer: object) => void;

const pageOf = (role: Role) => pages.get(role) as ConsolePage;

type OpenApi = {
  readonly paths: Readonly<
    Record<
      string,
      Readonly<
        Record<
          string,
          {
            readonly parameters?: readonly { readonly name: string; readonly in: string }[];
            readonly responses: Readonly<
              Record<string, { readonly content: Readonly<Record<string, { readonly schema: object }>> }>
            >;
          }
        >
      >
    >
  >;
};

function answersBy({ paths }: OpenApi): CheckAnswer {
  const forms = Object.keys(paths)
    .map((path) => [path, new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`)] as const)
    .toSorted(([a], [b]) => a.split('{').length - b.split('{').length);
  return (method, asked, status, answer) => {
    const [path = ''] = forms.find(([, form]) => form.test(`/admin/v1${asked.split('?')[0]}`)) ?? [];
    const { responses, parameters = [] } = paths[path]?.[method.toLowerCase()] ?? {};
    const schema = responses?.[status]?.content['application/json']?.schema;
    assert.ok(schema !== undefined, `${method} ${asked} is described`);
    const errors = Compile(schema as TSchema).Errors(answer);
    assert.deepEqual([...errors], [], `${method} ${asked}: ${JSON.stringify(answer)}`);
    for (const name of new URLSearchParams(asked.split('?')[1]).keys())
      assert.equal(parameters.find((each) => each.name === name)?.in, 'query', `${method} ${asked}`);
  };
}

type Right = CommandName | 'submitDeletion' | 'readExport';

type Row = readonly [
  right: Right,
  method: string,
  path: (of: TestAccount) => string | Promise<string>,
  roles: string,
  body?: (of: TestAccount) => object,
];

const nobody = { identity: 'nobody@example.com' };
const deletion = { users: [nobody] };
const callback = { url: 'http://127.0.0.1:9/' };

/** Lets an operator create what a row needs, such as a key to revoke; settles with a field of the answer. */
async function made(path: string, field: string, body: object = {}): Promise<string> {
  const { status, body: answer } = await pageOf('operator').ask('POST', path, body);
  assert.ok(status === 200 || status === 201, `${path}: ${JSON.stringify(answer)}`);
  return String(answer[field]);
}

const account = (path: string) => (of: TestAccount) => `/accounts/${of.accountId}${path}`;
const environment = (path: string) => (of: TestAccount) => `/environments/${of.appIds[1]}${path}`;
const deleted = (path: string) => (of: TestAccount) => `/deletions/${deletions.get(of)}${path}`;
const newName = () => ({ name: `N${Math.random()}` });
const newEmail = () => `new${Math.random()}@example.com`;

const newCase = async (of: TestAccount) => {
  const cases = account('/cases')(of);
  return `${cases}/${await made(cases, 'case_id', { reference: `R${Math.random()}` })}`;
};

/** Last come the roles that may: operator, administrator, privacy officer, viewer. Rows are tried on the own and on another account. */
const table: readonly Row[] = [
  ['listAccounts', 'GET', (of) => `/accounts?account_id=${of.accountId}`, 'oapv'],
  ['showEnvironment', 'GET', environment(''), 'oapv'],
  ['showStats', 'GET', environment('/stats'), 'oapv'],
  ['showLedger', 'GET', environment('/ledger?day=2026-11-01'), 'oapv'],
  ['listRejected', 'GET', environment('/rejected'), 'oapv'],
  ['showRejections', 'GET', environment('/rejections'), 'oapv'],
  ['listKeys', 'GET', environment('/keys'), 'oapv'],
  ['showKey', 'GET', environment('/key'), 'oapv'],
  ['listWriteKeys', 'GET', environment('/write-keys'), 'oapv'],
  ['listDeletions', 'GET', (of) => `/deletions?account_id=${of.accountId}&state=complete`, 'oapv'],
  ['showDeletion', 'GET', deleted(''), 'oapv'],
  ['listDeletionUsers', 'GET', deleted('/users'), 'oapv'],
  ['showCertificate', 'GET', deleted('/certificate'), 'oapv'],
  ['submitDeletion', 'POST', account('/user_deletion'), 'op', () => deletion],
  ['listExports', 'GET', account('/user_exports'), 'op'],
  ['submitExport', 'POST', account('/user_exports'), 'op', () => deletion],
  ['showOverview', 'GET', account('/overview'), 'oapv'],
  ['showTraffic', 'GET', account('/traffic?span=week'), 'oapv'],
  ['showTraffic', 'GET', (of) => `${account('/traffic')(of)}?app_id=${of.appIds[1]}`, 'oapv'],
  ['listEventNames', 'GET', environment('/event-names?days=30'), 'oapv'],
  ['listEventProperties', 'GET', environment('/event-properties?event=x'), 'oapv'],
  ['listEventProperties', 'POST', environment('/event-properties'), 'oapv', () => ({ event: 'x', days: 30 })],
  ['showFirstEvent', 'GET', environment('/first-event'), 'oapv'],
  ['watchLive', 'POST', environment('/live'), 'oap'],
  [
    'showLive',
    'GET',
    async (of) => `${environment('/live')(of)}?place=${await made(environment('/live')(of), 'place')}`,
    'oap',
  ],
  ['lookUpUser', 'POST', environment('/user'), 'op', () => nobody],
  ['lookUpUserEverywhere', 'POST', account('/user'), 'op', () => nobody],
  ['findSimilarUsersEverywhere', 'POST', account('/user/similar'), 'op', () => nobody],
  ['findRequestsOfUser', 'POST', account('/user/requests'), 'op', () => nobody],
  ['countUserEvents', 'POST', environment('/user/event-counts'), 'op', () => nobody],
  ['findSimilarUsers', 'POST', environment('/user/similar'), 'op', () => nobody],
  ['readUserEvents', 'POST', environment('/user/events'), 'op', () => nobody],
  ['setAccount', 'PATCH', account(''), 'oa', () => ({ due_days: 30 })],
  ['listProposals', 'GET', account('/deletion_proposals'), 'op'],
  ['listCases', 'GET', account('/cases'), 'op'],
  ['listCases', 'GET', account('/cases?state=closed'), 'op'],
  ['openCase', 'POST', account('/cases'), 'op', () => ({ reference: `R${Math.random()}` })],
  ['showCase', 'GET', (of) => newCase(of), 'op'],
  ['changeCase', 'PATCH', (of) => newCase(of), 'op', () => ({ state: 'closed', result: 'answered' })],
  ['showSuppressed', 'GET', account('/user_suppression'), 'op'],
  ['suppressUsers', 'POST', account('/user_suppression'), 'op', () => ({ ...deletion, suppress: true })],
  ['suppressUsers', 'POST', account('/user_suppression'), 'op', () => ({ ...deletion, suppress: false })],
  ['listPeople', 'GET', (of) => `/people?account_id=${of.accountId}`, 'oa'],
  ['listAudit', 'GET', (of) => `/audit?account_id=${of.accountId}`, 'oap'],
  ['addEnvironment', 'POST', account('/environments'), 'oa', newName],
  ['setEnvironment', 'PATCH', environment(''), 'oa', () => ({ validation: 'lenient' })],
  ['createKey', 'POST', environment('/key'), 'oa', newName],
  ['rotateKey', 'PUT', environment('/key'), 'oa', () => ({})],
  ['revokeKey', 'DELETE', environment('/key'), 'oa'],
  ['createWriteKey', 'POST', environment('/write-keys'), 'oa', newName],
  [
    'revokeWriteKey',
    'DELETE',
    async (of) => {
      const keys = environment('/write-keys')(of);
      return `${keys}/${await made(keys, 'id', newName())}`;
    },
    'oa',
  ],
  ['listProgramKeys', 'GET', (of) => `/program-keys?account_id=${of.accountId}`, 'oa'],
  [
    'createProgramKey',
    'POST',
    () => '/program-keys',
    'oa',
    (of) => ({ ...newName(), role: 'viewer', account_id: of.accountId }),
  ],
  [
    'revokeProgramKey',
    'DELETE',
    async ({ accountId }) => {
      const key = { ...newName(), role: 'viewer', account_id: accountId };
      return `/program-keys/${await made('/program-keys', 'id', key)}?account_id=${accountId}`;
    },
    'oa',
  ],
  [
    'invitePerson',
    'POST',
    () => '/people',
    'oa',
    (of) => ({ email: newEmail(), role: 'viewer', account_id: of.accountId }),
  ],
  [
    'removePerson',
    'DELETE',
    async ({ accountId }) => {
      const person = { email: newEmail(), role: 'viewer', account_id: accountId };
      return `/people/${await made('/people', 'person_id', person)}`;
    },
    'oa',
  ],
  ['setCallback', 'PUT', account('/callback'), 'oa', () => callback],
  ['showCallback', 'GET', account('/callback'), 'oapv'],
  ['testCallback', 'POST', account('/callback/test'), 'oa', () => ({})],
  ['removeCallback', 'DELETE', account('/callback'), 'oa'],
];

/** Only operators may do these; the status is that of the answer to them. */
const ofOperators: readonly (readonly [right: Right, method: string, path: () => string, status: number])[] =
  [
    ['createAccount', 'POST', () => '/accounts', 200],
    ['showDeployment', 'GET', () => '/deployment', 200],
    ['endDeletion', 'POST', () => `/deletions/${deletions.get(own)}/end`, 400],
    ['listFailed', 'GET', () => '/failed', 200],
    ['showLedgerCheck', 'GET', () => '/ledger/check', 200],
    ['listDifferences', 'GET', () => '/ledger/differences', 200],
    ['retryFailed', 'POST', () => '/failed/retry', 200],
    ['showKeyIndex', 'GET', () => '/keys-index', 200],
    ['listShards', 'GET', () => '/shards', 200],
    ['rebuildKeyIndex', 'POST', () => '/keys-index/rebuild', 200],
    ['reloadState', 'POST', () => '/restore', 200],
  ];

/** These rights have their own tests, or no way over HTTP. */
const others: readonly Right[] = [
  'readExport',
  'withdrawProposal',
  'showVerified',
  'moveShards',
  'balanceShards',
  'createBackup',
  'listBackups',
  'restoreBackup',
  'bootstrap',
  'showState',
  'recoverState',
];

const sluice = await ownSluice({ env: { CALLBACK_ALLOW: '127.0.0.1' } });
const own = await createTestAccount(sluice, 'Own');
const other = await createTestAccount(sluice, 'Other');
for (const role of ['operator', 'administrator', 'privacy', 'viewer'] as const) {
  const accountId = role === 'operator' ? undefined : own.accountId;
  pages.set(role, await signedIn(sluice, `${role}@example.com`, role, accountId));
}
await signedIn(sluice, 'stranger@example.com', 'viewer', other.accountId);
const listed = (await sluice.admin('people', 'list', '--account', other.accountId)) as {
  person_id: string;
}[];
const otherPerson = listed[0]?.person_id ?? '';
for (const of of [own, other]) {
  const id = await made(`/accounts/${of.accountId}/user_deletion`, 'deletion_request_id', deletion);
  deletions.set(of, id);
  const isComplete = async () =>
    (await pageOf('operator').ask('GET', `/deletions/${id}`)).body.status === 'complete';
  await until(isComplete, 'the deletion is complete');
}
const checkAnswer = answersBy(
  (await (await fetch(`${sluice.adminUrl}/admin/v1/openapi.json`)).json()) as OpenApi,
);

test('every right is in the tables of this test', () => {
  const named = new Set<string>([...table, ...ofOperators].map(([right]) => right).concat(others));
  assert.deepEqual([...named].toSorted(), Object.keys(forConsole.rights).toSorted());
});

const letterOf: Readonly<Record<Role, string>> = {
  operator: 'o',
  administrator: 'a',
  privacy: 'p',
  viewer: 'v',
};

test('a role does in its own account what the table says and nothing else, and in another account nothing', async () => {
  for (const [role, page] of pages) {
    for (const [, method, path, roles, body] of table) {
      const may = roles.includes(letterOf[role]);
      for (const of of role === 'operator' ? [other] : [own, other]) {
        const asked = await path(of);
        const { status, body: said } = await page.ask(method, asked, body?.(of));
        const what = `${role} ${method} ${asked} of ${of === own ? 'own' : 'other'}: ${JSON.stringify(said)}`;
        const { code, message = '' } = (said.err ?? {}) as { code?: string; message?: string };
        if (!may) assert.deepEqual([status, code], [403, 'forbidden'], what);
        else if (of === own || role === 'operator') {
          assert.equal(status, asked.endsWith('user_deletion') ? 201 : 200, what);
          checkAnswer(method, asked, status, said);
        } else {
          assert.deepEqual([status, code], [400, 'not_possible'], what);
          assert.match(message, /there is no/, what);
        }
      }
    }
  }
});

test('a request for something of another account is answered as if it did not exist', async () => {
  const page = pageOf('administrator');
  const pairs = [
    ['GET', `/environments/${other.appIds[0]}`, '/environments/9', other.appIds[0], '9'],
    ['DELETE', `/people/${otherPerson}`, '/people/pe_0', otherPerson, 'pe_0'],
    ['GET', `/audit?account_id=${other.accountId}`, '/audit?account_id=9', other.accountId, '9'],
  ] as const;
  for (const [method, foreign, missing, foreignName, missingName] of pairs) {
    const [a, b] = [await page.ask(method, foreign), await page.ask(method, missing)];
    assert.equal(a.status, b.status);
    assert.equal(
      JSON.stringify(a.body).replaceAll(String(foreignName), '…'),
      JSON.stringify(b.body).replaceAll(missingName, '…'),
    );
  }
});

test('people who may download exports get those of their own account only', async () => {
  const { body: made } = await pageOf('operator').ask(
    'POST',
    `/accounts/${other.accountId}/user_exports`,
    deletion,
  );
  const data = `/user_exports/${made.user_export_id}/data`;
  const missing = '/user_exports/00000000-0000-4000-8000-000000000000/data';
  for (const role of ['administrator', 'viewer'] as const)
    assert.equal((await pageOf(role).ask('GET', data)).status, 403, role);
  const [foreign, none] = [
    await pageOf('privacy').ask('GET', data),
    await pageOf('privacy').ask('GET', missing),
  ];
  assert.equal(foreign.status, 404);
  assert.deepEqual(foreign.body, none.body);
  await until(
    async () => (await pageOf('operator').ask('GET', data)).body.kind === 'end',
    'the export is there, and its only line is the last one',
  );
});

test('the audit log is narrowed by an export or a deletion, and finds nothing of other accounts', async () => {
  const asked = async ({ accountId }: TestAccount, what: string) => {
    const { body } = await pageOf('operator').ask('POST', `/accounts/${accountId}/${what}`, deletion);
    return String(body.user_export_id ?? body.deletion_request_id);
  };
  const linesOf = async (id: string) => {
    const { status, body } = await pageOf('privacy').ask('GET', `/audit?deletion_request_id=${id}`);
    return [status, (body as unknown as AuditEntry[]).map(({ action }) => action)];
  };
  assert.deepEqual(await linesOf(await asked(own, 'user_exports')), [200, ['submit_export']]);
  assert.deepEqual(await linesOf(await asked(own, 'user_deletion')), [200, ['submit_deletion']]);
  for (const what of ['user_exports', 'user_deletion'])
    assert.deepEqual(await linesOf(await asked(other, what)), [200, []], what);
  assert.deepEqual(await linesOf('9'), [200, []]);
});

test('lists without an account show the caller’s own one, and operators all accounts', async () => {
  for (const role of ['administrator', 'privacy', 'viewer'] as const) {
    const { body } = (await pageOf(role).ask('GET', '/accounts')) as { body: unknown };
    assert.deepEqual(
      (body as { account_id: string }[]).map(({ account_id }) => account_id),
      [own.accountId],
    );
  }
  const { body } = (await pageOf('operator').ask('GET', '/accounts')) as { body: unknown };
  assert.ok((body as object[]).length >= 3);
  const people = await pageOf('administrator').ask('GET', '/people');
  assert.doesNotMatch(JSON.stringify(people?.body), /operator@|stranger@/);
  const audit = await pageOf('administrator').ask('GET', '/audit');
  const text = JSON.stringify(audit?.body);
  assert.match(text, /"actor":"person","actor_name":"administrator@example.com"/);
  assert.ok(!text.includes(other.accountId) && !text.includes(other.appIds[0] ?? '?'));
  await pageOf('privacy').ask('POST', environment('/user')(own), nobody);
  for (const query of ['', `?account_id=${own.accountId}`]) {
    const ownLines = (await pageOf('privacy').ask('GET', `/audit${query}`)).body as unknown as AuditEntry[];
    assert.ok(ownLines.some(({ action }) => action === 'look_up_user'));
    // Of other people's lines, a privacy officer sees only those about users.
    const ofOthers = ownLines.filter(({ actor_name }) => actor_name !== 'privacy@example.com');
    assert.deepEqual(
      ofOthers.filter(({ action }) => !/user|export|deletion|case/.test(action)),
      [],
    );
  }
});

test('people who ask for hundreds of charts at once wait for them, but nobody of another account has to', async () => {
  const stranger = new ConsolePage(sluice.adminUrl);
  assert.equal((await stranger.signIn('stranger@example.com')).status, 200);
  const chartOf = async (page: ConsolePage, { accountId }: TestAccount) =>
    (await page.ask('GET', `/accounts/${accountId}/traffic?span=week`)).status;
  const people = (['administrator', 'privacy', 'viewer'] as const).map(pageOf);
  const flood = people.flatMap((page) => Array.from({ length: 100 }, () => chartOf(page, own)));
  let isFull = false;
  for (const asked of flood)
    void asked.then((status) => {
      isFull ||= status === 503;
    });
  await until(() => isFull, { what: 'the line of their account is full', everyMs: 1 });
  for (let n = 0; n < 5; n += 1) assert.equal(await chartOf(stranger, other), 200);
  const statuses = await Promise.all(flood);
  const refused = statuses.filter((status) => status === 503).length;
  assert.equal(statuses.filter((status) => status === 200).length, 300 - refused);
  assert.ok(refused >= 100, `${refused} of 300 found the line too long`);
  assert.equal(await chartOf(pageOf('viewer'), own), 200, 'requests are answered again afterwards');
});

test('an administrator invites nobody as operator, and nobody into another account', async () => {
  const page = pageOf('administrator');
  for (const body of [
    { email: 'x@example.com', role: 'operator' },
    { email: 'x@example.com', role: 'viewer', account_id: other.accountId },
    // Nor for somebody who has access, in whose name they could then act.
    { email: 'privacy@example.com', role: 'privacy' },
  ]) {
    assert.equal((await page.ask('POST', '/people', body)).status, 400);
  }
  // An address that is in use elsewhere keeps its role and its password, and the administrator does not learn that it is.
  const taken = await page.ask('POST', '/people', { email: 'operator@example.com', role: 'viewer' });
  assert.equal(taken.status, 200);
  const accepted = await new ConsolePage(sluice.adminUrl).ask('POST', '/invitation/accept', {
    invitation: new URL(String(taken.body.url)).hash.slice(1),
    password: 'a password of somebody else',
  });
  assert.equal(accepted.status, 400);
  assert.equal((await pageOf('operator').signIn('operator@example.com')).status, 200);
  await page.ask('DELETE', `/people/${taken.body.person_id}`);
});

test('only operators reach the endpoints of the deployment', async () => {
  // Only the first endpoint needs a body.
  const account = { name: 'x', environments: ['y'] };
  for (const [role, page] of pages) {
    for (const [, method, path, expected] of ofOperators) {
      const ask = () => page.ask(method, path(), method === 'GET' ? undefined : account);
      const { status, body } = await until(async () => {
        const answer = await ask();
        // A round of deletions that runs refuses a retry of failed rows for a moment.
        return !JSON.stringify(answer.body).includes('another retry is running') && answer;
      }, 'no round of deletions runs');
      const what = `${role} ${method} ${path()}: ${JSON.stringify(body)}`;
      assert.equal(status, role === 'operator' ? expected : 403, what);
      if (status === 200) checkAnswer(method, path(), status, body);
    }
    const verified = await page.ask('POST', '/certificates/verify', {});
    assert.deepEqual([verified.status, verified.body.genuine], [200, false], role);
  }
});

test('commands that only list or show are not audited, and all others are', () => {
  for (const [name, { audited }] of Object.entries(commands))
    assert.equal(audited === undefined, /^(list|show)/.test(name), name);
});

test('the OpenAPI document of the administration names every path and method, and no other', async () => {
  const document = (await (await fetch(`${sluice.adminUrl}/admin/v1/openapi.json`)).json()) as {
    paths: Record<string, Record<string, object>>;
  };
  const documented = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method} ${path}`),
  );
  const routes = [
    ...adminApiRoutes({} as AdminApiOptions),
    ...signInRoutes({} as SignInOptions),
    ...signOnRoutes({} as SignOnOptions),
    certificateCheckRoute({} as Parameters<typeof certificateCheckRoute>[0]),
    accountDeletionRoute({} as UserRequestOptions, {} as AdminCallers),
    accountExportRoute({} as UserRequestOptions, {} as AdminCallers),
  ].map(
    ({ method, path }) => `${method === 'del' ? 'delete' : method} ${path.replaceAll(/:(\w+)/g, '{$1}')}`,
  );
  assert.deepEqual(documented.toSorted(), [...routes, 'get /openapi.json'].toSorted());
  const validated = await new Validator().validate(structuredClone(document));
  assert.deepEqual(validated, { valid: true });
});

test('a person who is removed, or whose password another one chooses by a link, is signed out at once', async () => {
  const page = await signedIn(sluice, 'leaver@example.com', 'viewer', own.accountId);
  const listed = (await page.ask('GET', '/session')).body.person as { person_id: string };
  assert.equal((await page.ask('GET', '/accounts')).status, 200);
  const again = await signedIn(sluice, 'leaver@example.com', 'viewer', own.accountId);
  assert.equal((await page.ask('GET', '/accounts')).status, 401);
  assert.equal((await again.ask('GET', '/accounts')).status, 200);
  await sluice.admin('people', 'remove', listed.person_id);
  assert.equal((await again.ask('GET', '/accounts')).status, 401);
  assert.equal((await again.signIn('leaver@example.com', { password })).status, 401);
});
