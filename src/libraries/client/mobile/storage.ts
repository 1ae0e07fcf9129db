// The core's storage over a device's storage that may answer later. Everything is read into memory once. From then on memory is
// authoritative, and each write is repeated until the device has accepted it. If the device could not be read, it is not written to either:
// what it holds, above all its user, is worth more than what one run adds, and may be readable next time. The exception is the one key that
// the core has to know: the user's choice.

import type { Clock, KeyValueStorage } from '../core/adapters.js';
import type { DeviceStorage } from './adapters.js';

/** All keys of the library begin with this; the app's other keys are left alone. */
const keyPrefix = 'sluice:';

/** How long the device may take to read each part of its data. Calls wait for that long. */
const readMsMax = 10_000;
const keysPerRead = 500;

/** A write that takes longer than this is repeated; other writes continue in the meantime. */
const writeMsMax = 10_000;
const writesAtOnce = 20;
const [retryMsMin, retryMsMax] = [1_000, 60_000];

export type LoadedStorage = KeyValueStorage & {
  /** Reads the device; settles once that was tried. Never rejects. To be called once. */
  load(device: DeviceStorage | null | undefined): Promise<void>;
};

/** Makes a storage that holds nothing until it is loaded. */
export function createLoadedStorage(clock: Clock, warn: (line: string) => void): LoadedStorage {
  const texts = new Map<string, string>();
  /** Keys whose latest text, or removal, the device does not have yet. */
  const changed = new Set<string>();
  /** Keys that the device may hold: they were read, or their writing has begun. */
  const touched = new Set<string>();
  const writing = new Set<string>();
  /** Changed keys whose last write failed. Only these wait before they are written again. */
  const failed = new Set<string>();
  let device: DeviceStorage | undefined;
  let state: 'loading' | 'loaded' | 'unreadable' = 'loading';
  /** Keys that are read one by one when the device cannot be read as a whole: all of them, and those already read. */
  const single = new Set<string>();
  const known = new Set<string>();
  let retryMs = retryMsMin;
  let isRetryDue = false;
  let warned = false;

  function warnOnce(line: string): void {
    if (!warned) warn(line);
    warned = true;
  }

  async function load(given: DeviceStorage | null | undefined): Promise<void> {
    try {
      device = given ?? undefined;
      if (device === undefined) {
        warnOnce('no storage was given: the user and the queue are forgotten when the app ends.');
      } else {
        for (const [key, text] of await readAll(clock, device)) {
          touched.add(key);
          if (!changed.has(key)) texts.set(key, text);
        }
      }
      state = 'loaded';
    } catch {
      state = 'unreadable';
      warnOnce('the storage cannot be read: the user and the queue are forgotten when the app ends.');
    }
    write();
  }

  /** Whether a change of the key is to be written. What the device never had need not be removed. */
  function isWritten(key: string): boolean {
    if (state === 'loading') return true;
    if (device === undefined) return false;
    return state === 'unreadable' ? known.has(key) : texts.has(key) || touched.has(key);
  }

  function noteChange(key: string): void {
    if (!isWritten(key)) failed.delete(key);
    else if (!failed.has(key)) changed.add(key);
    write();
  }

  /** Starts as many writes as may run at once. */
  function write(): void {
    if (state === 'loading' || device === undefined) return;
    for (const key of changed) {
      if (writing.size >= writesAtOnce) return;
      if (!isWritten(key)) changed.delete(key);
      else if (!writing.has(key)) void writeOne(device, key);
    }
  }

  async function writeOne(to: DeviceStorage, key: string): Promise<void> {
    changed.delete(key);
    const mayBeThere = state === 'unreadable' || touched.has(key);
    touched.add(key);
    writing.add(key);
    const text = texts.get(key);
    // Started at once, since the app may end.
    const written = (async () => (text === undefined ? to.removeItem(key) : to.setItem(key, text)))().then(
      () => 'done',
      () => 'refused',
    );
    const outcome = await withinMs(clock, writeMsMax, written).catch(() => 'late');
    if (outcome === 'done') {
      retryMs = retryMsMin;
      if (text === undefined && !texts.has(key)) touched.delete(key);
    } else {
      if (outcome === 'refused' && !mayBeThere) touched.delete(key);
      if (isWritten(key)) retryLater(key);
      // If this write ends after all, it may have overwritten a newer text.
      void written.then((late) => {
        if (late === 'refused') return;
        touched.add(key);
        noteChange(key);
      });
      warnOnce('the storage refuses a write: it is retried while the app runs.');
    }
    writing.delete(key);
    write();
  }

  function retryLater(key: string): void {
    failed.add(key);
    if (isRetryDue) return;
    isRetryDue = true;
    clock.setTimer(retryMs, () => {
      isRetryDue = false;
      for (const key of failed) changed.add(key);
      failed.clear();
      write();
    });
    retryMs = Math.min(retryMs * 2, retryMsMax);
  }

  /** Reads a single key, repeatedly, until that succeeds or the user has chosen. */
  async function ask(from: DeviceStorage, key: string, callback: () => void, waitMs: number): Promise<void> {
    try {
      const text = await withinMs(clock, readMsMax, (async () => from.getItem(key))());
      if (typeof text === 'string' && !known.has(key)) texts.set(key, text);
      known.add(key);
    } catch {
      const nextMs = Math.min(waitMs * 2, retryMsMax);
      if (!known.has(key)) clock.setTimer(waitMs, () => void ask(from, key, callback, nextMs));
      return;
    }
    callback();
  }

  return {
    load,
    get: (key) => texts.get(key),
    set(key, text) {
      texts.set(key, text);
      // The choice that the user makes now replaces any earlier one.
      if (single.has(key)) known.add(key);
      noteChange(key);
      return true;
    },
    remove(key) {
      if (texts.delete(key) || state === 'loading') noteChange(key);
    },
    keys: (prefix) => [...texts.keys()].filter((key) => key.startsWith(prefix)),
    whenKnown(key, callback) {
      single.add(key);
      if (state !== 'unreadable' || device === undefined || known.has(key)) callback();
      else void ask(device, key, callback, retryMsMin);
    },
  };
}

async function readAll(clock: Clock, device: DeviceStorage): Promise<[key: string, text: string][]> {
  const all = await withinMs(clock, readMsMax, Promise.resolve(device.getAllKeys()));
  const keys = all.filter((key) => key.startsWith(keyPrefix));
  const found: [string, string][] = [];
  for (let at = 0; at < keys.length; at += keysPerRead) {
    const some = keys.slice(at, at + keysPerRead);
    for (const [key, text] of await withinMs(clock, readMsMax, readSome(device, some))) {
      if (typeof text === 'string') found.push([key, text]);
    }
  }
  return found;
}

async function readSome(
  device: DeviceStorage,
  keys: readonly string[],
): Promise<readonly (readonly [string, unknown])[]> {
  if (typeof device.multiGet === 'function') return device.multiGet(keys);
  return Promise.all(keys.map(async (key): Promise<[string, unknown]> => [key, await device.getItem(key)]));
}

async function withinMs<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = clock.setTimer(ms, () => reject(new Error('too late')));
  });
  return Promise.race([work, late]).finally(() => cancel());
}
