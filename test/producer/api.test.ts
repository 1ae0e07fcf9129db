// The typed clients of the administration and the deletion API: they are what the service's documents say, and they work.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type OpenApiDocument, operationsSources } from '../../deploy/client-operations.js';
import {
  type Administration,
  createAdministration,
  createDeletionApi,
  SluiceError,
} from '../../src/libraries/producer/index.js';
import { createTestAccount } from '../harness/accounts.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const sluice = await sharedSluice();
const account = await createTestAccount(sluice, 'Typed');
const { program_key: token } = (await sluice.admin(
  'program-keys',
  'create',
  'typed',
  '--role',
  'operator',
)) as { program_key: string };
const administration: Administration = createAdministration({ baseUrl: `${sluice.adminUrl}/`, token });
await until(() => administration.listAccounts({}).then(Boolean, () => false), 'the API knows the key');
after(() => administration.close());

test('the clients have the types and routes of the documents', async () => {
  const read = async (url: string) => (await (await fetch(url)).json()) as OpenApiDocument;
  const sources = operationsSources(
    await read(`${sluice.baseUrl}/openapi.json`),
    await read(`${sluice.adminUrl}/admin/v1/openapi.json`),
  );
  for (const [name, source] of Object.entries(sources)) {
    const path = `src/libraries/producer/${name}`;
    const formatted = spawnSync(
      join(root, 'node_modules/.bin/biome'),
      ['format', `--stdin-file-path=${path}`],
      { cwd: root, input: source, encoding: 'utf8' },
    );
    assert.equal(formatted.status, 0, formatted.stderr);
    assert.equal(readFileSync(join(root, path), 'utf8'), formatted.stdout);
  }
});

test('calls the administration by its operations, with paths, queries and bodies', async () => {
  const made = await administration.createAccount({
    name: 'By a client',
    environments: ['Main Production', 'Te/st ?'],
  });
  const listed = await administration.listAccounts({ account_id: made.account_id });
  assert.deepEqual(
    listed.map(({ name }) => name),
    ['By a client'],
  );
  const app_id = made.environments[1]?.app_id ?? '';
  await administration.setEnvironment({ app_id, validation: 'lenient' });
  assert.equal((await administration.showEnvironment({ app_id })).validation, 'lenient');
  const { id, write_key } = await administration.createWriteKey({ app_id, name: 'shop' });
  assert.match(write_key, /^slw_/);
  assert.equal((await administration.revokeWriteKey({ app_id, id })).keys_left, 0);
  await assert.rejects(administration.showEnvironment({ app_id: '9' }), (error) => {
    assert.ok(error instanceof SluiceError);
    assert.deepEqual([error.code, error.status], ['not_possible', 400]);
    return true;
  });
  // In a URL these would lead to another path.
  for (const elsewhere of ['', '.', '..'])
    await assert.rejects(administration.revokeWriteKey({ app_id, id: elsewhere }), TypeError);
  assert.throws(() => {
    // @ts-expect-error: the path needs it.
    void administration.showEnvironment({}).catch(() => undefined);
    throw new TypeError('it does not compile');
  }, TypeError);
});

test('calls the deletion API, and gets its tokens by itself', async () => {
  const [appId = ''] = account.appIds;
  const deletion = createDeletionApi({ baseUrl: sluice.baseUrl, appId, apiKey: account.apiKey });
  const submitted = await deletion.submitDeletion({ users: [{ identity: 'nobody' }] });
  assert.ok('deletion_request_id' in submitted);
  const { deletion_request_id: id } = submitted;
  const status = await deletion.readDeletionStatus({ deletion_request_id: id });
  assert.equal(status.deletion_request_id, id);
  deletion.close();
  const wrong = createDeletionApi({ baseUrl: sluice.baseUrl, appId, apiKey: 'wrong' });
  await assert.rejects(
    wrong.readDeletionStatus({ deletion_request_id: id }),
    (error) => error instanceof SluiceError && error.code === 'unauthorized',
  );
  wrong.close();
});
