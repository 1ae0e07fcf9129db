// Services that falsify the books in one way each, all of which must be found, and the unchanged service, whose books balance.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ledgerMutants } from '../chaos/ledger-mutants.js';
import { applyMutant } from '../chaos/mutants.js';
import { removeTempDir } from '../harness/temp-dir.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));

async function runIn(copy: string): Promise<{ balanced: boolean; differences: unknown[] }> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(copy, 'dist/test/chaos/ledger-scenario.js')],
    { timeout: 600_000, maxBuffer: 1024 ** 3 },
  );
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
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
