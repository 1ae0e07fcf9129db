// Who holds the engine's lock on its data directory.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { untilLockFree } from '../../deploy/local/clickhouse/status-lock.js';
import { killGroup, launch } from '../../deploy/local/launch.js';
import { canMount, createSmallDisk } from '../chaos/small-disk.js';
import { until } from '../harness/wait.js';

const disks = canMount() ? [createSmallDisk(), createSmallDisk()] : [];
const skip = disks.length === 0 ? 'this machine mounts nothing' : false;

after(() => {
  for (const disk of disks) disk.remove();
});

test('a lock is found by its file, not by a file with the same number on another disk', {
  skip,
}, async () => {
  const [held = '', free = ''] = disks.map(({ dir }) => join(dir, 'status'));
  for (const file of [held, free]) writeFileSync(file, '');
  assert.equal(statSync(held).ino, statSync(free).ino);
  // flock waits for the lock, since each check below takes it for a moment.
  const program = { command: 'flock', args: [held, 'sleep', '60'], env: process.env };
  const { pid = 0 } = launch(program, 'ignore', 'KILL');
  try {
    const isHeld = () => spawnSync('flock', ['-n', held, 'true']).status === 1;
    await until(isHeld, 'the lock is held');
    assert.equal(await untilLockFree(free), undefined);
    assert.equal(await untilLockFree(held), pid);
  } finally {
    killGroup(pid);
  }
  assert.equal(await untilLockFree(held), undefined);
});
