// The way to a first event: the programs that the service offers for an environment run unchanged, and the console's first page says when
// the event has arrived.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { createTestAccount } from '../harness/accounts.js';
import { launchBrowser, withoutBrowser } from '../harness/browser.js';
import { isAccepted, paths, post } from '../harness/ingestion.js';
import { inShell } from '../harness/shell.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { checkReadable, enter, openConsole } from '../support/console-browser.js';
import { root } from '../support/deploy-file.js';
import { sharedSluice } from '../support/sluice.js';

type First = {
  readonly event: { readonly event: string; readonly received_at: string } | null;
  readonly examples: readonly { readonly name: string; readonly program: string }[];
};

const sluice = await sharedSluice();
const account = await createTestAccount(sluice, 'First', ['Main Production', 'Open', 'Keys']);
const dir = tempDir('first-event');
mkdirSync(join(dir, 'node_modules'));
for (const [name, folder] of [
  ['sluice-server', 'dist/src/libraries/producer'],
  ['@segment', 'node_modules/@segment'],
] as const)
  symlinkSync(join(root, folder), join(dir, 'node_modules', name));

/** Asks over HTTP, since the command line knows the service's address only where it has the service's environment. */
async function firstOf(appId: string): Promise<First> {
  const answer = await fetch(`${sluice.adminUrl}/admin/v1/environments/${appId}/first-event`, {
    headers: { authorization: `Bearer ${sluice.adminToken}` },
  });
  assert.equal(answer.status, 200);
  return (await answer.json()) as First;
}

/** Runs a program of the answer, as a reader would. The programs for browsers and phones have their own tests. */
const runs: Readonly<Record<string, (program: string) => Promise<unknown>>> = {
  curl: (program) => inShell(program),
  'Node.js': runModule,
  Python: (program) => promisify(execFile)('python3', ['-c', program]),
  "Segment's library": runModule,
};

async function runModule(program: string): Promise<void> {
  const file = join(dir, 'program.mjs');
  // Imports the package by the path of its main file, since the package is only linked as a folder.
  writeFileSync(file, program.replace("'sluice-server'", "'./node_modules/sluice-server/index.js'"));
  await promisify(execFile)(process.execPath, [file], { cwd: dir });
}

for (const [name, run] of Object.entries(runs)) {
  for (const needsKey of [false, true]) {
    const what = needsKey ? 'with a write key, where one is required' : 'without one elsewhere';
    test(`the program for ${name} sends an event ${what}`, async (context) => {
      if (name === 'Python' && (await inShell('command -v python3 || true')) === '')
        return context.skip('python3 is not installed');
      const { app_id: appId } = (await sluice.admin(
        'environments',
        'add',
        account.accountId,
        `${name} ${needsKey}`,
      )) as {
        app_id: string;
      };
      let key = '';
      if (needsKey) {
        ({ write_key: key } = (await sluice.admin('write-keys', 'create', appId)) as { write_key: string });
        await sluice.admin('environments', 'set', appId, '--write-key', 'required');
      }
      const { event, examples } = await firstOf(appId);
      assert.equal(event, null);
      const program = examples.find((example) => example.name === name)?.program ?? '';
      assert.equal(program.includes('WRITE_KEY'), needsKey, program);
      const settled = async () => {
        // An API process may not know the environment's new setting yet.
        await run(program.replaceAll('WRITE_KEY', key)).catch(() => undefined);
        return (await firstOf(appId)).event !== null;
      };
      await until(settled, `an event is stored by\n${program}`);
      const arrived = (await firstOf(appId)).event;
      assert.equal(arrived?.event, 'First Event');
      assert.ok(Math.abs(Date.parse(String(arrived?.received_at)) - Date.now()) < 60_000);
    });
  }
}

test('the programs for pages and phones have the app_id and the address, and need no key', async () => {
  const { examples } = await firstOf(account.appIds[1] ?? '');
  assert.deepEqual(
    examples.map(({ name }) => name),
    ['curl', 'Node.js', 'Python', "Segment's library", 'Web page', 'React Native'],
  );
  for (const { program } of examples)
    assert.ok(program.includes(account.appIds[1] ?? '') && program.includes(sluice.baseUrl), program);
});

test('an environment without events says so on the command line, and one that does not exist is named', async () => {
  const said = (await sluice.admin('environments', 'first-event', account.appIds[2] ?? '')) as First;
  assert.equal(said.event, null);
  await assert.rejects(sluice.admin('environments', 'first-event', '1'), /there is no environment 1/);
});

describe('the first page of the console', { skip: withoutBrowser() }, () => {
  test('shows the programs until an event has arrived, says so within seconds, and shows nothing of it afterwards', async () => {
    const browser = await launchBrowser();
    after(() => browser.close());
    const { page, faults } = await openConsole(browser, sluice);
    await enter(page, sluice, 'first@event.example', 'administrator', account.accountId);
    const heading = page.getByRole('heading', { name: 'Send the first event of Main Production' });
    await heading.waitFor();
    await page.getByLabel('With').selectOption({ label: 'Web page' });
    await page.getByText("sluice.track('First Event');").waitFor();
    await checkReadable(page, 'Overview');
    const events = [{ app_id: account.appIds[0], identity: 'ada', event: 'Arrived here' }];
    for (const event of events) assert.ok(isAccepted(await post(sluice.baseUrl, paths.track, event)));
    const beganMs = performance.now();
    await page.getByText('The first event of Main Production has arrived: Arrived here.').waitFor();
    assert.ok(performance.now() - beganMs < 30_000);
    assert.equal(await heading.count(), 0);
    // An empty page comes first, so that the answer cannot be one to the former page, whose body never ends.
    const address = page.url();
    await page.goto('about:blank');
    const asked = page.waitForResponse((response) => response.url().endsWith('/first-event'));
    await page.goto(address);
    await (await asked).finished();
    await page.getByRole('heading', { name: 'Records that were accepted' }).waitFor();
    assert.equal(await page.getByText('first event of').count(), 0);
    assert.deepEqual(faults, []);
  });
});
