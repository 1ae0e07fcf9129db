// How `npm test` gets a program whose Debian package would start a service.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { tempDir } from '../harness/temp-dir.js';

const script = fileURLToPath(new URL('../../../deploy/local/unpack.mjs', import.meta.url));

function fetchPromtool(scripts: Record<string, string>, into = tempDir('unpacked')) {
  const path = tempDir('path');
  for (const [name, text] of Object.entries(scripts)) {
    writeFileSync(join(path, name), `#!/bin/sh\n${text}\n`);
    chmodSync(join(path, name), 0o755);
  }
  for (const program of ['env', 'mkdir', 'touch']) {
    symlinkSync(spawnSync('which', [program], { encoding: 'utf8' }).stdout.trim(), join(path, program));
  }
  const wanted = JSON.stringify([{ program: 'promtool', package: 'prometheus' }]);
  const code = `import(${JSON.stringify(script)}).then((it) => it.unpackPrograms(${wanted}, ${JSON.stringify(into)}))`;
  const { status, stderr } = spawnSync(process.execPath, ['-e', code], {
    env: { PATH: path },
    encoding: 'utf8',
  });
  return { status, stderr, into, path };
}

const dpkgDeb = '[ "$1" = -x ] && mkdir -p "$3/usr/bin" && echo "from $2" > "$3/usr/bin/promtool"';

test('does nothing when the program is on the PATH or was fetched before', () => {
  const silent = { status: 0, stderr: '' };
  const { status, stderr } = fetchPromtool({ promtool: '' });
  assert.deepEqual({ status, stderr }, silent);
  const into = tempDir('unpacked');
  writeFileSync(join(into, 'promtool'), '');
  const again = fetchPromtool({}, into);
  assert.deepEqual({ status: again.status, stderr: again.stderr }, silent);
});

test('takes the program out of the package and leaves nothing else, without installing', () => {
  const { status, stderr, into, path } = fetchPromtool({
    'apt-get': 'echo "$@" >> "$0.log"; touch prometheus_2_amd64.deb',
    'dpkg-deb': dpkgDeb,
  });
  assert.equal(status, 0, stderr);
  assert.equal(stderr, 'sluice: fetching promtool (apt-get download prometheus)\n');
  assert.deepEqual(readdirSync(into), ['promtool']);
  assert.equal(readFileSync(join(into, 'promtool'), 'utf8'), 'from prometheus_2_amd64.deb\n');
  assert.doesNotMatch(readFileSync(join(path, 'apt-get.log'), 'utf8'), /install/);
});

test('updates the package lists when the first try fails', () => {
  const { status, stderr } = fetchPromtool({
    sudo: 'shift; exec "$@"',
    'apt-get': [
      'case "$*" in *update*) : > "$0.updated"; exit 0;; esac',
      '[ -e "$0.updated" ] && touch prometheus_2_amd64.deb',
    ].join('\n'),
    'dpkg-deb': dpkgDeb,
  });
  assert.equal(status, 0, stderr);
});

test('names the package in one line when there is no apt-get, or when it fails', () => {
  const { status, stderr } = fetchPromtool({});
  assert.equal(status, 1);
  const byHand = 'install the package prometheus, or put promtool on the PATH\n';
  assert.equal(stderr, `sluice: promtool is missing: ${byHand}`);

  const failed = fetchPromtool({ sudo: 'exit 1', 'apt-get': 'exit 100', 'dpkg-deb': dpkgDeb });
  assert.equal(failed.status, 1);
  assert.deepEqual(
    failed.stderr.split('\n').slice(1).join('\n'),
    `sluice: promtool could not be fetched: ${byHand}`,
  );
  assert.deepEqual(readdirSync(failed.into), []);
});
