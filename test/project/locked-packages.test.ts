// The packages: the lock file has the hash of each, and npm can list what runs.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../support/deploy-file.js';

type Locked = {
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
};

const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
  packages: Record<string, Locked>;
};

test('every package that Linux on x64 installs is locked by its hash', () => {
  const installed = Object.entries(packages).filter(
    ([path, { os = ['linux'], cpu = ['x64'], libc = ['glibc'] }]) =>
      path !== '' && os.includes('linux') && cpu.includes('x64') && libc.includes('glibc'),
  );
  assert.ok(installed.length > 300);
  const unlocked = installed.filter(([, { integrity }]) => !/^sha512-/.test(integrity ?? ''));
  assert.deepEqual(
    unlocked.map(([path]) => path).filter((path) => !path.includes('-musl')),
    [],
  );
});

test('npm lists every package that the service loads, with its hash', () => {
  const { status, stdout, stderr } = spawnSync('npm', ['run', '--silent', 'sbom'], {
    cwd: root,
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
  const { bomFormat, components } = JSON.parse(stdout) as {
    bomFormat: string;
    components: { name: string; version: string; hashes?: object[] }[];
  };
  assert.equal(bomFormat, 'CycloneDX');
  const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  for (const name of Object.keys(dependencies)) {
    const listed = components.find((component) => component.name === name);
    assert.ok((listed?.hashes?.length ?? 0) > 0, name);
  }
});
