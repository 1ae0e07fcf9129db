// Who may do what over HTTP: every role at every endpoint of the administration, for its own account and for another one.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { createTestAccount, type TestAccount } from '../../harness/accounts.js';
import { type SluiceHandle, startSluice } from '../../harness/services.js';
import { until } from '../../harness/wait.js';
import { createAdminCommands } from '../../src/admin/commands.js';
import type { AdminContext } from '../../src/admin/context.js';
import type { Role } from '../../src/contract/roles.js';
import { rights } from '../../src/contract/roles.js';
import { type AdminApiOptions, adminApiRoutes } from '../../src/http/endpoints/admin-api.js';
import type { AdminCallers } from '../../src/http/endpoints/admin-caller.js';
import {
  accountDeletionRoute,
  type SubmissionOptions,
} from '../../src/http/endpoints/deletion-submission.js';
import { type SignInOptions, signInRoutes } from '../../src/http/endpoints/sign-in.js';
import { type SignOnOptions, signOnRoutes } from '../../src/http/endpoints/sign-on.js';
import { accountExportRoute, type ExportApiOptions } from '../../src/http/endpoints/user-export.js';
import { type ConsolePage, password, signedIn } from '../support/console.js';

let sluice: SluiceHandle;
let own: TestAccount;
let other: TestAccount;
let otherPerson: string;
const pages = new Map<Role, ConsolePage>();

const pageOf = (role: Role) => pages.get(role) as ConsolePage;

before(async () => {
  sluice = await startSluice();
  own = await createTestAccount(sluice, 'Own');
  other = await createTestAccount(sluice, 'Other');
  for (const role of ['operator', 'administrator', 'privacy', 'viewer'] as const) {
    const accountId = role === 'operator' ? undefined : own.accountId;
    pages.set(role, await signedIn(sluice, `${role}@example.com`, role, accountId));
  }
  await signedIn(sluice, 'stranger@example.com', 'viewer', other.accountId);
  const listed = (await sluice.admin('people', 'list', '--account', other.accountId)) as {
    person_id: string;
  }[];
  otherPerson = listed[0]?.person_id ?? '';
});

after(() => sluice?.stop());

type Row = readonly [
  method: string,
  path: (of: TestAccount) => string,
  roles: string,
  body?: (of: TestAccount) => object,
];

/** o, a, p, v: operator, administrator, privacy officer, viewer. Every row is tried on the own and on the other account. */
const table: readonly Row[] = [
  ['GET', (of) => `/accounts?account_id=${of.accountId}`, 'oapv'],
  ['GET', (of) => `/environments/${of.appIds[1]}`, 'oapv'],
  ['GET', (of) => `/environments/${of.appIds[1]}/stats`, 'oapv'],
  ['GET', (of) => `/environments/${of.appIds[1]}/rejected`, 'oapv'],
  ['GET', (of) => `/environments/${of.appIds[1]}/keys`, 'oapv'],
  ['GET', (of) => `/environments/${of.appIds[1]}/key`, 'oapv'],
  ['GET', (of) => `/environments/${of.appIds[1]}/write-keys`, 'oapv'],
  ['GET', (of) => `/deletions?account_id=${of.accountId}`, 'oapv'],
  ['POST', (of) => `/accounts/${of.accountId}/user_deletion`, 'op', () => deletion],
  ['GET', (of) => `/accounts/${of.accountId}/user_exports`, 'op'],
  ['POST', (of) => `/accounts/${of.accountId}/user_exports`, 'op', () => deletion],
  ['GET', (of) => `/accounts/${of.accountId}/callback`, 'oapv'],
  ['GET', (of) => `/accounts/${of.accountId}/overview`, 'oapv'],
  ['GET', (of) => `/accounts/${of.accountId}/traffic?span=week`, 'oapv'],
  ['GET', (of) => `/accounts/${of.accountId}/traffic?app_id=${of.appIds[1]}`, 'oapv'],
  ['GET', (of) => `/environments/${of.appIds[1]}/event-names?days=30`, 'oapv'],
  ['GET', (of) => `/environments/${of.appIds[1]}/event-properties?event=x`, 'oapv'],
  ['POST', (of) => `/environments/${of.appIds[1]}/live`, 'oap'],
  ['POST', (of) => `/environments/${of.appIds[1]}/user`, 'op', () => nobody],
  ['POST', (of) => `/environments/${of.appIds[1]}/user/similar`, 'op', () => nobody],
  ['POST', (of) => `/environments/${of.appIds[1]}/user/events`, 'op', () => nobody],
  [
    'POST',
    (of) => `/accounts/${of.accountId}/user_suppression`,
    'op',
    () => ({ ...deletion, suppress: true }),
  ],
  ['GET', (of) => `/people?account_id=${of.accountId}`, 'oa'],
  ['GET', (of) => `/audit?account_id=${of.accountId}`, 'oa'],
  ['POST', (of) => `/accounts/${of.accountId}/environments`, 'oa', () => ({ name: `E${Math.random()}` })],
  ['PATCH', (of) => `/environments/${of.appIds[1]}`, 'oa', () => ({ validation: 'lenient' })],
  ['POST', (of) => `/environments/${of.appIds[1]}/key`, 'oa', () => ({ name: `K${Math.random()}` })],
  ['PUT', (of) => `/environments/${of.appIds[1]}/key`, 'oa', () => ({})],
  ['DELETE', (of) => `/environments/${of.appIds[1]}/key`, 'oa'],
  ['POST', (of) => `/environments/${of.appIds[1]}/write-keys`, 'oa', () => ({ name: 'w' })],
  [
    'POST',
    () => '/people',
    'oa',
    (of) => ({
      email: `new${Math.random()}@example.com`,
      role: 'viewer',
      account_id: of.accountId,
    }),
  ],
];

const nobody = { identity: 'nobody@example.com' };
const deletion = { users: [nobody] };

const letterOf: Readonly<Record<Role, string>> = {
  operator: 'o',
  administrator: 'a',
  privacy: 'p',
  viewer: 'v',
};

test('a role does in its own account what the table says and nothing else, and in another account nothing', async () => {
  for (const [role, page] of pages) {
    for (const [method, path, roles, body] of table) {
      const may = roles.includes(letterOf[role]);
      for (const of of [own, other]) {
        // Somebody who may makes what a row needs, such as a key to rotate.
        const { status, body: said } = await page.ask(method, path(of), body?.(of));
        const what = `${role} ${method} ${path(of)} of ${of === own ? 'own' : 'other'}: ${JSON.stringify(said)}`;
        const code = (said.err as { code?: string } | undefined)?.code;
        if (!may) assert.deepEqual([status, code], [403, 'forbidden'], what);
        else if (of === own || role === 'operator')
          assert.equal(status, path(of).endsWith('user_deletion') ? 201 : 200, what);
        else assert.deepEqual([status, code], [400, 'not_possible'], what);
      }
    }
  }
});

test('what belongs to another account is answered like what does not exist', async () => {
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

test('those who may download an export get it, if it is of their account', async () => {
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
  await until(async () => (await pageOf('operator').ask('GET', data)).body.kind === 'end', {
    deadlineMs: 60_000,
    what: 'the export is there, and its only line is the last one',
  });
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
});

test('an administrator invites nobody as operator, and nobody into another account', async () => {
  const page = pageOf('administrator');
  for (const body of [
    { email: 'x@example.com', role: 'operator' },
    { email: 'x@example.com', role: 'viewer', account_id: other.accountId },
  ]) {
    assert.equal((await page.ask('POST', '/people', body)).status, 400);
  }
  // An address that is in use elsewhere keeps its role and its password.
  const taken = await page.ask('POST', '/people', { email: 'operator@example.com', role: 'viewer' });
  assert.equal(taken.status, 400);
  assert.equal((await pageOf('operator').signIn('operator@example.com')).status, 200);
});

test('only operators reach what concerns the deployment', async () => {
  const deployment = ['/failed', '/keys-index', '/shards', '/deployment'];
  for (const [role, page] of pages) {
    for (const path of deployment) {
      assert.equal((await page.ask('GET', path)).status, role === 'operator' ? 200 : 403, `${role} ${path}`);
    }
    if (role !== 'operator') {
      for (const path of ['/failed/retry', '/keys-index/rebuild', '/restore', '/accounts'])
        assert.equal(
          (await page.ask('POST', path, { name: 'x', environments: ['y'] })).status,
          403,
          `${role} ${path}`,
        );
    }
  }
});

test('every command has its row in the table of rights', () => {
  const commands = createAdminCommands({ redis: {}, clickhouse: {}, config: {} } as AdminContext, {
    kind: 'command_line',
    name: 'test',
    address: '',
  });
  // These have endpoints of their own.
  const others = ['submitDeletion', 'readExport'];
  assert.deepEqual([...Object.keys(commands), ...others].toSorted(), Object.keys(rights).toSorted());
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
    accountDeletionRoute({} as SubmissionOptions, {} as AdminCallers),
    accountExportRoute({} as ExportApiOptions, {} as AdminCallers),
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
