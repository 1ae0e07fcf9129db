// Cases, which consist of their lines in the audit log, and the filters of the log.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Case } from '../../src/privacy/cases/cases.js';
import type { AuditEntry } from '../../src/registry/audit/read.js';
import { createTestAccount } from '../harness/accounts.js';
import { paths, post, untilStored } from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { type ConsolePage, signedIn } from '../support/console.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const own = await createTestAccount(sluice, 'Own');
const other = await createTestAccount(sluice, 'Other');
const officer = await signedIn(sluice, 'officer@cases.example', 'privacy', own.accountId);
const second = await signedIn(sluice, 'second@cases.example', 'privacy', own.accountId);
const stranger = await signedIn(sluice, 'stranger@cases.example', 'privacy', other.accountId);

const url = (path = '') => `/accounts/${own.accountId}/cases${path}`;

async function ok<Answer>(page: ConsolePage, method: string, path: string, body?: object): Promise<Answer> {
  const { status, body: answer } = await page.ask(method, path, body);
  assert.ok(status === 200 || status === 201, `${method} ${path}: ${JSON.stringify(answer)}`);
  return answer as Answer;
}

async function refused(page: ConsolePage, method: string, path: string, body?: object): Promise<string> {
  const { status, body: answer } = await page.ask(method, path, body);
  assert.equal(status, 400, JSON.stringify(answer));
  return (answer.err as { message: string }).message;
}

const open = (reference: string, more: object = {}) =>
  ok<Case>(officer, 'POST', url(), { reference, ...more });
const list = (state = 'open', page = officer) => ok<Case[]>(page, 'GET', url(`?state=${state}`));
const audit = (query: string, page = officer) => ok<AuditEntry[]>(page, 'GET', `/audit?${query}`);

test('a case is due as many days after it was received as the account has set, and the list begins with the next one', async () => {
  const march = await open('March', { received_on: '2026-03-01' });
  assert.deepEqual(
    [march.received_on, march.due_on, march.state, march.opened_by],
    ['2026-03-01', '2026-03-31', 'open', 'officer@cases.example'],
  );
  await sluice.admin('accounts', 'set', own.accountId, '--due-days', '10');
  const [{ settings }] = await ok<[{ settings: { due_days: number } }]>(officer, 'GET', '/accounts');
  assert.equal(settings.due_days, 10);
  assert.equal((await open('Leap', { received_on: '2028-02-25' })).due_on, '2028-03-06');
  await open('Own day', { received_on: '2026-03-02', due_on: '2026-03-05' });
  assert.deepEqual(
    (await list()).map(({ reference }) => reference),
    ['Own day', 'March', 'Leap'],
  );
  const today = new Date().toISOString().slice(0, 10);
  const { received_on } = await open('Today');
  assert.ok([today, new Date().toISOString().slice(0, 10)].includes(received_on));
});

test('refuses text that is no day, a due day before the day of receipt, and the reference of another open case', async () => {
  for (const day of ['2026-02-30', '1.3.2026', '', '2026-03-01T00:00:00Z'])
    assert.match(
      await refused(officer, 'POST', url(), { reference: 'x', received_on: day }),
      /must be a day/,
    );
  const early = { reference: 'x', received_on: '2026-03-02', due_on: '2026-03-01' };
  assert.match(await refused(officer, 'POST', url(), early), /before it was received/);
  assert.match(await refused(officer, 'POST', url(), { reference: ' ' }), /needs a reference/);
  const { case_id } = await open('Twice');
  const other = url(`/${(await open('Once')).case_id}`);
  const twice = /open case with this reference/;
  assert.match(await refused(second, 'POST', url(), { reference: ' Twice ' }), twice);
  assert.match(await refused(second, 'PATCH', other, { reference: ' Twice ' }), twice);
  await ok(officer, 'PATCH', url(`/${case_id}`), { state: 'closed' });
  await ok(second, 'PATCH', other, { reference: ' Twice ' });
  assert.equal((await ok<Case>(second, 'GET', other)).reference, 'Twice');
  assert.match(await refused(officer, 'PATCH', url(`/${case_id}`), { state: 'open' }), twice);
  assert.match(await refused(officer, 'POST', url(), { reference: 'x'.repeat(256) }), /at most 255/);
});

test('when two people change a case at once both changes hold, and neither can change it once the other has closed it', async () => {
  const { case_id: id } = await open('Two', { received_on: '2026-04-01' });
  await Promise.all([
    ok(officer, 'PATCH', url(`/${id}`), { due_on: '2026-06-01' }),
    ok(second, 'PATCH', url(`/${id}`), { reference: 'Two, renamed' }),
  ]);
  const changed = await ok<Case>(officer, 'GET', url(`/${id}`));
  assert.deepEqual([changed.reference, changed.due_on], ['Two, renamed', '2026-06-01']);
  await ok(second, 'PATCH', url(`/${id}`), { state: 'closed', result: 'answered' });
  assert.match(await refused(officer, 'PATCH', url(`/${id}`), { due_on: '2026-07-01' }), /is closed/);
  assert.match(await refused(officer, 'PATCH', url(`/${id}`), { state: 'closed' }), /already closed/);
  const [closed] = await list('closed');
  assert.deepEqual(
    [closed?.case_id, closed?.closed_by, closed?.result, closed?.due_on],
    [id, 'second@cases.example', 'answered', '2026-06-01'],
  );
  await ok(officer, 'PATCH', url(`/${id}`), { state: 'open' });
  assert.ok((await list()).some(({ case_id, state }) => case_id === id && state === 'open'));
});

test('a case says what was done in it, its lines are found with those of its requests, and none of them names a user', async () => {
  const person = { identity: 'person-in-a-case@cases.example' };
  await post(sluice.baseUrl, paths.track, { app_id: own.appIds[0], ...person, event: 'Seen' });
  await untilStored(sluice);
  const { case_id } = await open('Work');
  const account = (path: string) => `/accounts/${own.accountId}/${path}`;
  const users = [person];
  await ok(officer, 'POST', account('user_deletion'), { users, dry_run: true, case_id });
  const { user_export_id } = await ok<{ user_export_id: string }>(officer, 'POST', account('user_exports'), {
    users,
    case_id,
  });
  const data = `/user_exports/${user_export_id}/data`;
  await until(
    async () => (await second.ask('GET', `${data}?format=zip`).catch(() => undefined)) === undefined,
    'the archive, which is no JSON, is there',
  );
  await ok(officer, 'POST', account('user_suppression'), { users, suppress: true, case_id });
  await ok(second, 'POST', account('user_deletion'), { users, case_id });
  // This deletion does not belong to the case.
  await ok(second, 'POST', account('user_deletion'), { users });
  const { done } = await ok<Case>(officer, 'GET', url(`/${case_id}`));
  assert.deepEqual(done, { preview_deletion: 1, submit_deletion: 1, submit_export: 1, suppress_users: 1 });
  const lines = await audit(`case_id=${case_id}`);
  assert.deepEqual([...new Set(lines.map(({ action, actor_name }) => `${action} ${actor_name}`))].sort(), [
    'open_case officer@cases.example',
    'preview_deletion officer@cases.example',
    'read_export second@cases.example',
    'submit_deletion second@cases.example',
    'submit_export officer@cases.example',
    'suppress_users officer@cases.example',
  ]);
  const kept = JSON.stringify([
    lines,
    await list(),
    await sluice.rows(`SELECT * FROM audit_log WHERE details LIKE '%${case_id}%'`),
  ]);
  assert.doesNotMatch(kept, /person-in-a-case/);
});

test('nothing is done in a case that is closed or does not exist', async () => {
  const { case_id } = await open('Over');
  await ok(officer, 'PATCH', url(`/${case_id}`), { state: 'closed' });
  const users = [{ identity: 'nobody' }];
  const before = (await audit('action=submit_deletion')).length;
  for (const [path, more] of [
    ['user_deletion', {}],
    ['user_deletion', { dry_run: true }],
    ['user_exports', {}],
    ['user_suppression', { suppress: true }],
  ] as const) {
    const of = `/accounts/${own.accountId}/${path}`;
    assert.match(await refused(officer, 'POST', of, { users, case_id, ...more }), /case is closed/);
    const missing = { users, case_id: '00000000-0000-4000-8000-000000000000', ...more };
    assert.match(await refused(officer, 'POST', of, missing), /there is no case/);
    assert.match(
      await refused(officer, 'POST', of, { users, case_id: `' OR 1`, ...more }),
      /there is no case/,
    );
  }
  assert.equal((await audit('action=submit_deletion')).length, before);
});

test('another account sees nothing of a case, and works in none of them', async () => {
  const { case_id } = await open(`'); DROP TABLE audit_log; --<b>`);
  const [theirs] = (await list()).filter((each) => each.case_id === case_id);
  assert.equal(theirs?.reference, `'); DROP TABLE audit_log; --<b>`);
  const foreign = `/accounts/${other.accountId}/cases`;
  assert.deepEqual(await ok(stranger, 'GET', foreign), []);
  assert.match(await refused(stranger, 'GET', `${foreign}/${case_id}`), /there is no case/);
  assert.match(await refused(stranger, 'GET', url(`/${case_id}`)), /there is no account/);
  assert.match(
    await refused(stranger, 'PATCH', `${foreign}/${case_id}`, { state: 'closed' }),
    /there is no case/,
  );
  // The stranger sees only the line of their own attempt.
  assert.deepEqual(
    (await audit(`case_id=${case_id}`, stranger)).map(({ account_id, outcome }) => [account_id, outcome]),
    [[other.accountId, 'refused']],
  );
  const users = [{ identity: 'nobody' }];
  const theirUrl = `/accounts/${other.accountId}/user_exports`;
  assert.match(await refused(stranger, 'POST', theirUrl, { users, case_id }), /there is no case/);
});

test('privacy officers see what was done with users by anybody, what they did, and nothing else; filters narrow it', async () => {
  const administrator = await signedIn(sluice, 'admin@cases.example', 'administrator', own.accountId);
  await ok(administrator, 'POST', `/environments/${own.appIds[1]}/write-keys`, { name: 'Shop' });
  await ok(administrator, 'POST', '/people', { email: 'new@cases.example', role: 'viewer' });
  const all = await audit('');
  const ofOthers = all.filter(({ actor_name }) => actor_name !== 'officer@cases.example');
  assert.ok(ofOthers.some(({ action }) => action === 'submit_deletion'));
  assert.deepEqual(
    ofOthers.filter(({ action }) => /key|person|invitation|sign/.test(action)),
    [],
  );
  assert.ok(
    all.some(({ action }) => action === 'accept_invitation'),
    'their own',
  );
  assert.ok((await audit('action=create_write_key', administrator)).length > 0);
  assert.deepEqual(await audit('action=create_write_key'), []);
  const bySecond = await audit('who=second@cases.example');
  assert.ok(bySecond.length > 1);
  assert.deepEqual([...new Set(bySecond.map(({ actor_name }) => actor_name))], ['second@cases.example']);
  const [first, later] = [bySecond.at(-1), bySecond[0]] as [AuditEntry, AuditEntry];
  const until_ = await audit(`who=second@cases.example&until=${first.at}`);
  assert.deepEqual(until_, [first]);
  assert.deepEqual((await audit(`who=second@cases.example&since=${later.at}`))[0], later);
  const [deletion] = bySecond.filter(({ deletion_request_id: id }) => id !== '');
  const about = await audit(`deletion_request_id=${deletion?.deletion_request_id}`);
  assert.deepEqual(about, [deletion]);
  for (const wrong of ['yesterday', '2026-02-30'])
    assert.match(await refused(officer, 'GET', `/audit?since=${wrong}`), /must be a day/);
  assert.deepEqual(await audit('who=%27%20OR%201%3D1'), []);
  // Page by page, with a filter.
  const pages = await audit(`before=${later.at}&before_id=${later.id}&who=second@cases.example`);
  assert.deepEqual(pages, bySecond.slice(1));
});
