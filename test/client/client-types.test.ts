// The operations of each platform, at run time. The build compiles `client-calls.ts`, which holds their types.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sluice as web } from 'sluice/client';
import { sluice as android } from 'sluice/client/android';
import { sluice as ios } from 'sluice/client/ios';
import { sluice as reactNative } from 'sluice/client/react-native';

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
