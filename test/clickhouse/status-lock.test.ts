// Who holds the engine's lock on its data directory.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { untilLockFree } from '../../deploy/local/clickhouse/status-lock.js';
import { killGroup, launch } from '../../deploy/local/launch.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

test('a lock is noticed while its process lives, and named as the engine noted it', async () => {
  const file = join(tempDir('status'), 'status');
  assert.equal(await untilLockFree(file), undefined);
  writeFileSync(file, 'PID: 4711\nStarted at: 2026-01-02 03:04:05\n');
  assert.equal(await untilLockFree(file), undefined);
  // flock waits for the lock, since each check below takes it for a moment.
  const program = { command: 'flock', args: [file, 'sleep', '60'], env: process.env };
  const { pid = 0 } = launch(program, 'ignore', 'KILL');
  try {
    const isHeld = () => spawnSync('flock', ['-n', file, 'true']).status === 1;
    await until(isHeld, 'the lock is held');
    assert.equal(await untilLockFree(file), '4711');
  } finally {
    killGroup(pid);
  }
  assert.equal(await untilLockFree(file), undefined);
});
