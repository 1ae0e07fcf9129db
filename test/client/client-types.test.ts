// The operations of each platform, by their types and at run time.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { sluice as web } from 'sluice/client';
import { sluice as android } from 'sluice/client/android';
import { sluice as ios } from 'sluice/client/ios';
import { sluice as reactNative } from 'sluice/client/react-native';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');

type Platform = 'JavaScript' | 'React Native' | 'iOS' | 'Android';

const all: readonly Platform[] = ['JavaScript', 'React Native', 'iOS', 'Android'];

/** The client library's operations and the platforms that have them, as the contract lists them. */
const contract: Readonly<Record<string, readonly Platform[]>> = {
  track: all,
  identify: all,
  resetIdentity: all,
  addUserProperties: all,
  addEventProperties: all,
  removeEventProperty: all,
  clearEventProperties: all,
  userId: ['JavaScript', 'React Native', 'iOS'],
  identity: ['JavaScript', 'React Native'],
  changeInterval: ['iOS'],
  setAppId: ['React Native', 'iOS'],
  init: ['Android'],
  startEVPairing: ['iOS', 'Android'],
  stopEVPairing: ['iOS', 'Android'],
  disableVisualizerPairingGesture: ['iOS', 'Android'],
  disableDefaultPairingGesture: ['Android'],
};

/** Further members: where to send, and consent. */
const besides: Readonly<Record<string, readonly Platform[]>> = {
  load: ['JavaScript'],
  configure: ['React Native', 'iOS', 'Android'],
  optOut: all,
  optIn: all,
  flush: ['JavaScript'],
  droppedCount: ['JavaScript'],
};

const surfaces: readonly (readonly [Platform, object])[] = [
  ['JavaScript', web],
  ['React Native', reactNative],
  ['iOS', ios],
  ['Android', android],
];

for (const [platform, surface] of surfaces) {
  test(`${platform} has exactly its operations`, () => {
    const expected = Object.entries({ ...contract, ...besides })
      .filter(([, platforms]) => platforms.includes(platform))
      .map(([name]) => name);
    assert.deepEqual(Object.keys(surface).sort(), expected.sort());
    const values = ['userId', 'identity', 'droppedCount'];
    for (const name of expected.filter((name) => !values.includes(name))) {
      assert.equal(typeof Reflect.get(surface, name), 'function', name);
    }
  });
}

describe('an app that has the package', () => {
  const calls = join(root, 'test/support/client-calls.ts');
  let dir: string;

  before(() => {
    dir = tempDir('app');
    mkdirSync(join(dir, 'node_modules'));
    symlinkSync(root, join(dir, 'node_modules/sluice'));
    writeFileSync(join(dir, 'package.json'), JSON.stringify({ type: 'module' }));
  });

  after(() => removeTempDir(dir));

  /** The lines in which the compiler finds errors. It has the types of neither Node nor a browser. */
  function compile(moduleResolution: string): string[] {
    const compiler = join(root, 'node_modules/typescript/bin/tsc');
    const module = moduleResolution === 'bundler' ? 'esnext' : moduleResolution;
    const flags = ['--strict', '--noEmit', '--target', 'es2018', '--lib', 'es2020', '--types', ''];
    const { stdout } = spawnSync(
      process.execPath,
      [compiler, ...flags, '--module', module, '--moduleResolution', moduleResolution, 'app.ts'],
      { cwd: dir, encoding: 'utf8' },
    );
    return stdout.split('\n').filter((line) => line !== '');
  }

  for (const moduleResolution of ['bundler', 'nodenext']) {
    test(`compiles correct calls and no wrong one (${moduleResolution})`, () => {
      copyFileSync(calls, join(dir, 'app.ts'));
      assert.deepEqual(compile(moduleResolution), []);
    });
  }
});
