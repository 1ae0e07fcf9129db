// Services that falsify the books in one way each, all of which must be found, and the unchanged service, whose books balance.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text as textOf } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { launch } from '../../deploy/local/launch.js';
import { ledgerMutants } from '../chaos/ledger-mutants.js';
import { applyMutant } from '../chaos/mutants.js';
import { removeTempDir } from '../harness/temp-dir.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));

async function runIn(copy: string): Promise<{ balanced: boolean; differences: unknown[] }> {
  const args = [join(copy, 'dist/test/chaos/ledger-scenario.js')];
  // It ends with this process, even if that is interrupted.
  const scenario = launch(
    { command: process.execPath, args, env: process.env },
    ['ignore', 'pipe', 'inherit'],
    'KILL',
  );
  const late = setTimeout(() => scenario.kill('SIGKILL'), 600_000);
  const [printed, [code]] = await Promise.all([textOf(scenario.stdout as Readable), once(scenario, 'exit')]);
  clearTimeout(late);
  assert.equal(code, 0, printed);
  return JSON.parse(printed.trim().split('\n').at(-1) ?? '');
}

describe('the ledger', { concurrency: 3 }, () => {
  test('of the service as it is balances', async () => {
    assert.deepEqual(await runIn(root), { balanced: true, differences: [] });
  });

  for (const mutant of ledgerMutants)
    test(`finds a service that ${mutant.name}`, async () => {
      const copy = applyMutant({ ...mutant, faults: [], shows: [] });
      try {
        const { balanced } = await runIn(copy);
        assert.equal(balanced, false);
      } finally {
        removeTempDir(copy);
      }
    });
});
