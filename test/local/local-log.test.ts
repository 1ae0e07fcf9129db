// The log files of the children that `npm start` runs.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { openLogFile } from '../../deploy/local/log-file.js';
import { logLineText } from '../../deploy/local/log-line.js';
import { canMount, createSmallDisk } from '../chaos/small-disk.js';
import { tempDir } from '../harness/temp-dir.js';

const MiB = 1024 * 1024;

test('a log file that exceeds 20 MiB is renamed once, and later lines go to a new file', () => {
  const path = join(tempDir('log'), 'child.log');
  const log = openLogFile(path, () => false, assert.fail);
  const line = `${'x'.repeat(MiB - 1)}\n`;
  for (let written = 0; written < 20; written += 1) writeSync(log.fd, line);
  log.flush();
  assert.equal(existsSync(`${path}.1`), false);
  writeSync(log.fd, line);
  log.flush();
  assert.equal(statSync(`${path}.1`).size, 21 * MiB);
  assert.equal(statSync(path).size, 0);
  writeSync(log.fd, 'after\n');
  log.flush();
  assert.equal(readFileSync(path, 'utf8'), 'after\n');
  assert.equal(log.lastLine(), 'after');
  log.close();
});

test('a log file that exceeds 20 MiB on a full disk is emptied, and replaces an earlier one if that makes room', {
  skip: !canMount(),
}, (t) => {
  const disk = createSmallDisk();
  t.after(disk.remove);
  const path = join(disk.dir, 'child.log');
  const log = openLogFile(path, () => false, assert.fail);
  t.after(log.close);
  const fill = (letter: string) => {
    for (let written = 0; written < 21; written += 1) writeSync(log.fd, letter.repeat(MiB));
    disk.fill();
    log.flush();
    assert.equal(statSync(path).size, 0);
  };
  fill('a');
  assert.equal(existsSync(`${path}.1`), false);
  writeFileSync(`${path}.1`, 'x'.repeat(21 * MiB));
  disk.free();
  fill('b');
  assert.equal(readFileSync(`${path}.1`, 'latin1'), 'b'.repeat(21 * MiB));
});

test('shows the first five lines worth showing of a period', () => {
  const shown: string[] = [];
  const log = openLogFile(
    join(tempDir('log'), 'child.log'),
    (line) => line.startsWith('bad'),
    (line) => shown.push(line),
  );
  writeSync(log.fd, Array.from({ length: 9 }, (_, index) => `good ${index}\nbad ${index}\n`).join(''));
  log.close();
  assert.deepEqual(shown, ['bad 0', 'bad 1', 'bad 2', 'bad 3', 'bad 4']);
});

test('shows the level, message and error of warnings and errors, and nothing of other entries', () => {
  assert.equal(logLineText('{"level":30,"msg":"listening"}'), undefined);
  assert.equal(
    logLineText(
      '{"level":50,"msg":"insert failed","error":{"name":"Error","code":"241","message":"memory"}}',
    ),
    'error insert failed (241: memory)',
  );
  assert.equal(logLineText('sluice: PORT 8080 is taken'), 'PORT 8080 is taken');
  assert.equal(logLineText(''), undefined);
});
