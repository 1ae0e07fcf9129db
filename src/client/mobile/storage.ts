// The core's storage over a device's storage that may answer later. Everything is read once, into memory;
// from then on memory is what counts, and writes follow behind, the latest of a key after its former ones.
// A device that could not be read is not written to either: what it holds, above all its user, is worth more
// than what one run adds, and may be readable the next time.

import type { Clock, KeyValueStorage } from '../core/adapters.js';
import type { DeviceStorage } from './adapters.js';

/** All keys of the library begin with it; the app's other keys are left alone. */
const keyPrefix = 'sluice:';

/** The device may take this long to be read; calls wait for it. */
const loadMsMax = 10_000;

/** Changes that wait for a device which doesn't finish its writes; above it, the device is given up. */
const changesMax = 20_000;

export type LoadedStorage = KeyValueStorage & {
  /** Reads the device; settles when that was tried, after 10 s at the latest. To be called once. */
  load(device: DeviceStorage | undefined): Promise<void>;
};

/** Makes a storage that holds nothing until it is loaded. */
export function createLoadedStorage(clock: Clock, warn: (line: string) => void): LoadedStorage {
  const texts = new Map<string, string>();
  /** Keys whose latest text, or lack of one, the device does not have yet. */
  const changed = new Set<string>();
  let loading = true;
  let device: DeviceStorage | undefined;
  let writing = false;
  let warned = false;

  function warnOnce(line: string): void {
    if (!warned) warn(line);
    warned = true;
  }

  async function load(given: DeviceStorage | undefined): Promise<void> {
    const loaded = given && (await withinMs(clock, loadMsMax, readAll(given)).catch(() => undefined));
    loading = false;
    if (given === undefined || loaded === undefined) {
      const reason = given === undefined ? 'no storage was given' : 'the storage cannot be read';
      useMemory(`${reason}: the user and the queue are forgotten when the app ends.`);
      return;
    }
    for (const [key, text] of loaded) {
      if (!changed.has(key)) texts.set(key, text);
    }
    device = given;
    if (changed.size > 0) void writeBehind(given);
  }

  /** From now on nothing is kept on the device. */
  function useMemory(line: string): void {
    device = undefined;
    changed.clear();
    warnOnce(line);
  }

  function noteChange(key: string): void {
    if (device !== undefined || loading) changed.add(key);
    if (device === undefined) return;
    if (changed.size > changesMax) {
      useMemory('the storage does not finish its writes: from now on nothing is kept in it.');
    } else if (!writing) {
      void writeBehind(device);
    }
  }

  async function writeBehind(to: DeviceStorage): Promise<void> {
    writing = true;
    while (changed.size > 0 && device === to) {
      const keys = [...changed];
      changed.clear();
      const written = await Promise.all(keys.map((key) => writeOne(to, key)));
      if (written.includes(false)) {
        warnOnce('the storage refuses a write: what it does not take is forgotten when the app ends.');
      }
    }
    writing = false;
  }

  async function writeOne(to: DeviceStorage, key: string): Promise<boolean> {
    const text = texts.get(key);
    try {
      await (text === undefined ? to.removeItem(key) : to.setItem(key, text));
      return true;
    } catch {
      return false;
    }
  }

  return {
    load,
    get: (key) => texts.get(key),
    set(key, text) {
      texts.set(key, text);
      noteChange(key);
    },
    remove(key) {
      if (texts.delete(key) || loading) noteChange(key);
    },
    keys: (prefix) => [...texts.keys()].filter((key) => key.startsWith(prefix)),
  };
}

async function readAll(device: DeviceStorage): Promise<[key: string, text: string][]> {
  const keys = (await device.getAllKeys()).filter((key) => key.startsWith(keyPrefix));
  const entries = await Promise.all(
    keys.map(async (key): Promise<[string, unknown]> => [key, await device.getItem(key)]),
  );
  return entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string');
}

async function withinMs<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = clock.setTimer(ms, () => reject(new Error('too late')));
  });
  return Promise.race([work, late]).finally(() => cancel());
}
