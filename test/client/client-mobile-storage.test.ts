// The storage of a phone: it answers late, fails, or hangs, and apps are killed in the middle of its work.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EventMessage } from '../../src/libraries/client/core/messages.js';
import { createLoadedStorage } from '../../src/libraries/client/mobile/storage.js';
import { createReactNativeSluice } from '../../src/libraries/client/react-native.js';
import { gate } from '../harness/wait.js';
import { createTestClock, failure } from '../support/client-world.js';
import fc from '../support/fast-check.js';
import { createPhone, type Phone, settle, startReactNative } from '../support/phone.js';

const intervalMs = 15_000;

function events(phone: Phone): EventMessage[] {
  return phone.server.stored.filter((message) => message.type === 'event');
}

describe('before the storage is loaded', () => {
  test('calls wait, and then count for the stored user, in their order and with their times', async () => {
    const phone = createPhone();
    const first = startReactNative(phone);
    await settle();
    const user = first.sluice.userId;
    first.run.kill();

    const loading = gate();
    phone.storage.before = () => loading.opened;
    const { sluice } = startReactNative(phone);
    sluice.track('a', { n: 1 });
    const called = new Date(phone.clock.now()).toISOString();
    await phone.clock.advance(1_000);
    sluice.identify('ada@example.com');
    sluice.track('b');
    sluice.addEventProperties({ plan: 'free' });
    sluice.track('c');
    assert.deepEqual([sluice.userId, phone.server.received.length], [undefined, 0]);
    loading.open();
    await phone.clock.advance(intervalMs);
    assert.equal(sluice.userId, user);
    assert.deepEqual(
      phone.server.stored.map((message) => [message.type, message.user_id, message.identity]),
      [
        ['event', user, undefined],
        ['identify', user, 'ada@example.com'],
        ['event', user, 'ada@example.com'],
        ['event', user, 'ada@example.com'],
      ],
    );
    assert.deepEqual(
      events(phone).map(({ event, properties }) => [event, { ...properties }]),
      [
        ['a', { n: 1 }],
        ['b', {}],
        ['c', { plan: 'free' }],
      ],
    );
    assert.equal(events(phone)[0]?.time, called);
  });
});

describe('a killed app', () => {
  test('sends its queue at its next start, each message once and with the same id', async () => {
    const phone = createPhone();
    phone.server.answerWith = () => failure(0);
    const first = startReactNative(phone);
    for (let n = 0; n < 30; n++) first.sluice.track(`event ${n}`);
    await phone.clock.advance(intervalMs);
    const sentIds = phone.server.received[0]?.request.messages.map(({ id }) => id);
    const user = first.sluice.userId;
    first.run.kill();
    phone.server.answerWith = () => undefined;
    const second = startReactNative(phone);
    await phone.clock.advance(5 * 60_000);
    assert.equal(second.sluice.userId, user);
    assert.deepEqual(
      phone.server.stored.map(({ id }) => id),
      sentIds,
    );
    assert.deepEqual(
      phone.server.events(),
      Array.from({ length: 30 }, (_, n) => `event ${n}`),
    );
    second.run.kill();
    const requests = phone.server.received.length;
    startReactNative(phone);
    await phone.clock.advance(5 * 60_000);
    assert.equal(phone.server.received.length, requests, 'nothing is left to be sent');
  });

  test('keeps its identity, its global properties and the user’s choice', async () => {
    const phone = createPhone();
    const first = startReactNative(phone);
    first.sluice.identify('ada@example.com');
    first.sluice.addEventProperties({ plan: 'free' });
    await settle();
    first.run.kill();
    const second = startReactNative(phone);
    second.sluice.track('a');
    await phone.clock.advance(intervalMs);
    assert.equal(second.sluice.identity, 'ada@example.com');
    assert.deepEqual({ ...events(phone)[0]?.properties }, { plan: 'free' });
    second.sluice.optOut();
    await settle();
    second.run.kill();
    const third = startReactNative(phone);
    third.sluice.track('b');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['a']);
  });
});

describe('a storage that cannot be read', () => {
  /** A phone whose user the storage holds; `before` is what happens to each later call of the storage. */
  async function usedPhone(before: (call: string) => Promise<void>, isOptedOut = false) {
    const phone = createPhone();
    const first = startReactNative(phone);
    first.sluice.track('a');
    await phone.clock.advance(intervalMs);
    const user = first.sluice.userId;
    if (isOptedOut) first.sluice.optOut();
    await settle();
    first.run.kill();
    const texts = new Map(phone.storage.texts);
    assert.ok(texts.size > 0);
    phone.storage.before = before;
    return { phone, user, texts };
  }

  const failing = (part: string) => async (call: string) => {
    if (call.startsWith(part)) throw new Error('corrupt');
  };

  test('is not written to, causes one warning, and nothing else fails', async () => {
    const { phone, user, texts } = await usedPhone(failing('getAllKeys'));
    const second = startReactNative(phone);
    second.sluice.track('b');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['a', 'b']);
    assert.notEqual(second.sluice.userId, user);
    assert.deepEqual(phone.storage.texts, texts);
    assert.equal(second.run.warnings.length, 1);
    assert.match(second.run.warnings[0] ?? '', /^Sluice: the storage cannot be read/);
    second.run.kill();

    phone.storage.before = async () => {};
    const third = startReactNative(phone);
    await settle();
    assert.equal(third.sluice.userId, user, 'the user is back with the storage');
  });

  test('still shows that the user has opted out', async () => {
    const { phone } = await usedPhone(failing('getAllKeys'), true);
    const { sluice } = startReactNative(phone);
    sluice.track('b');
    await phone.clock.advance(10 * intervalMs);
    assert.deepEqual([phone.server.events(), sluice.userId], [['a'], undefined]);
    sluice.optIn();
    sluice.track('c');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['a', 'c']);
    assert.match(phone.storage.texts.get('sluice:1:consent') ?? '', /^in/, 'what the user chooses is kept');
  });

  test('makes calls wait until it shows whether the user has opted out', async () => {
    const { phone } = await usedPhone(failing('get'));
    const { sluice, run } = startReactNative(phone);
    sluice.track('b');
    await phone.clock.advance(10 * intervalMs);
    assert.deepEqual([phone.server.events(), sluice.userId], [['a'], undefined]);
    phone.storage.before = failing('getAllKeys');
    await phone.clock.advance(60_000 + intervalMs);
    assert.deepEqual(phone.server.events(), ['a', 'b']);
    run.kill();

    phone.storage.before = failing('get');
    const other = startReactNative(phone);
    other.sluice.track('c');
    await phone.clock.advance(intervalMs);
    other.sluice.optOut();
    other.sluice.track('d');
    phone.storage.before = async () => {};
    await phone.clock.advance(120_000);
    assert.deepEqual(phone.server.events(), ['a', 'b']);
    assert.match(phone.storage.texts.get('sluice:1:consent') ?? '', /^out/, 'the new choice is stored');
  });

  test('makes calls wait while it is read, and does not override what was chosen since', async () => {
    for (const wasOut of [false, true]) {
      const { phone } = await usedPhone(failing('get'), wasOut);
      const { sluice } = startReactNative(phone);
      await phone.clock.advance(intervalMs);
      sluice.track('b');
      phone.storage.before = failing('getAllKeys');
      await phone.clock.advance(60_000 + intervalMs);
      assert.deepEqual(phone.server.events(), wasOut ? ['a'] : ['a', 'b']);
    }

    const { phone } = await usedPhone(failing('get'));
    const { sluice, run } = startReactNative(phone);
    await phone.clock.advance(intervalMs);
    const { opened, open: answer } = gate();
    phone.storage.before = async (call) => {
      if (call.startsWith('getAllKeys')) throw new Error('corrupt');
      if (call !== 'getItem sluice:1:consent') return;
      await opened;
      // The text that the storage had when it was asked.
      phone.storage.texts.set('sluice:1:consent', 'in 7');
    };
    await phone.clock.advance(60_000);
    sluice.optOut();
    await settle();
    assert.match(phone.storage.texts.get('sluice:1:consent') ?? '', /^out/, 'stored before the read ends');
    answer();
    await phone.clock.advance(60_000);
    sluice.track('c');
    await phone.clock.advance(10 * intervalMs);
    assert.deepEqual(phone.server.events(), ['a']);
    assert.ok(run.warnings.length > 0);
  });

  test('is also one that does not answer within 10 seconds', async () => {
    const { phone } = await usedPhone(() => new Promise(() => {}));
    const { sluice, run } = startReactNative(phone);
    sluice.track('b');
    await phone.clock.advance(9_999);
    assert.deepEqual([sluice.userId, run.warnings.length], [undefined, 0]);
    await phone.clock.advance(1);
    assert.equal(run.warnings.length, 1);
    phone.storage.before = async () => {};
    await phone.clock.advance(30_000);
    assert.match(String(sluice.userId), /^\d+$/);
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['a', 'b']);
  });
});

describe('no storage', () => {
  for (const storage of [undefined, null]) {
    test(`(${storage}) causes a warning, and everything is sent from memory`, async () => {
      const phone = createPhone();
      const run = phone.open();
      const sluice = createReactNativeSluice();
      sluice.configure({ ...run.adapters, storage: storage as never });
      sluice.setAppId('1');
      sluice.track('a');
      await phone.clock.advance(intervalMs);
      assert.deepEqual(phone.server.events(), ['a']);
      assert.match(run.warnings.join(), /no storage was given/);
    });
  }
});

describe('a storage that refuses writes', () => {
  test('causes one warning, and everything is sent from memory', async () => {
    const phone = createPhone();
    phone.storage.before = async (name) => {
      if (name.startsWith('setItem')) throw new Error('full');
    };
    const { sluice, run } = startReactNative(phone);
    for (let n = 0; n < 10; n++) {
      sluice.track('a');
      await phone.clock.advance(intervalMs);
    }
    assert.equal(phone.server.stored.length, 10);
    assert.equal(run.warnings.length, 1);
    assert.match(run.warnings[0] ?? '', /^Sluice: the storage refuses a write/);
  });

  for (const fault of ['fails', 'never answers'] as const) {
    const refuse = (part: string) => async (call: string) => {
      if (!call.startsWith(part)) return;
      if (fault === 'fails') throw new Error('full');
      await new Promise(() => {});
    };

    test(`gets the refused writes once it accepts writes again (a write ${fault})`, async () => {
      const phone = createPhone();
      const first = startReactNative(phone);
      first.sluice.identify('ada@example.com');
      await phone.clock.advance(intervalMs);
      const former = first.sluice.userId;
      phone.storage.before = refuse('setItem sluice:1:user');
      first.sluice.resetIdentity();
      await phone.clock.advance(intervalMs);
      phone.storage.before = async () => {};
      await phone.clock.advance(120_000);
      first.run.kill();
      const second = startReactNative(phone);
      await settle();
      assert.equal(second.sluice.identity, undefined);
      assert.notEqual(second.sluice.userId, former);
    });

    test(`does not keep messages that were sent meanwhile (a removal ${fault})`, async () => {
      const phone = createPhone();
      const first = startReactNative(phone);
      first.sluice.track('a');
      await settle();
      phone.storage.before = refuse('removeItem');
      await phone.clock.advance(2 * intervalMs);
      assert.deepEqual(phone.server.events(), ['a']);
      phone.storage.before = async () => {};
      await phone.clock.advance(120_000);
      first.run.kill();
      const requests = phone.server.received.length;
      startReactNative(phone);
      await phone.clock.advance(10 * intervalMs);
      assert.equal(phone.server.received.length, requests);
    });
  }

  test('is tried less and less often', async () => {
    const phone = createPhone();
    phone.storage.before = async (call) => {
      if (call.startsWith('setItem')) throw new Error('full');
    };
    startReactNative(phone).sluice.identify('ada@example.com');
    await phone.clock.advance(10 * 60_000);
    const tries = phone.storage.calls.filter((call) => call === 'setItem sluice:1:user').length;
    assert.ok(tries > 5 && tries < 60, `${tries} in ten minutes`);
  });

  test('for one key still accepts all others', async () => {
    const phone = createPhone();
    phone.storage.before = async (call) => {
      if (call === 'setItem sluice:1:session') await new Promise(() => {});
    };
    const first = startReactNative(phone);
    first.sluice.track('a');
    await phone.clock.advance(intervalMs);
    first.sluice.identify('ada@example.com');
    await phone.clock.advance(300_000);
    assert.match(first.run.warnings.join(), /the storage refuses a write/);
    first.run.kill();
    const second = startReactNative(phone);
    await settle();
    assert.equal(second.sluice.identity, 'ada@example.com');
  });

  test('for long does not bring back values that were replaced or removed meanwhile', async () => {
    const device = new Map<string, string>();
    const clock = createTestClock();
    const storage = createLoadedStorage(clock, () => {});
    const late = gate();
    let isFirst = true;
    await storage.load({
      getItem: (key) => device.get(key),
      getAllKeys: () => [...device.keys()],
      async setItem(key, text) {
        if (isFirst) await late.opened;
        device.set(key, text);
      },
      removeItem: (key) => void device.delete(key),
    });
    storage.set('sluice:1:user', 'former');
    storage.set('sluice:1:q:a', 'sent since');
    isFirst = false;
    storage.set('sluice:1:user', 'present');
    storage.remove('sluice:1:q:a');
    await clock.advance(30_000);
    assert.deepEqual([...device], [['sluice:1:user', 'present']]);
    late.open();
    await clock.advance(60_000);
    assert.deepEqual([...device], [['sluice:1:user', 'present']]);
  });
});

describe('the storage of the library', () => {
  test('leaves the keys of the app alone', async () => {
    const phone = createPhone();
    phone.storage.texts.set('cart', '3 apples');
    phone.storage.texts.set('sluice', 'a dam');
    const { sluice } = startReactNative(phone);
    sluice.track('a');
    await phone.clock.advance(intervalMs);
    const foreign = phone.storage.calls.filter((call) => !/^(getAllKeys$|\w+ sluice:)/.test(call));
    assert.deepEqual(foreign, []);
    assert.deepEqual(
      ['cart', 'sluice'].map((key) => phone.storage.texts.get(key)),
      ['3 apples', 'a dam'],
    );
  });

  test('ends with what was set last, however the device orders its writes', async () => {
    const changes = fc.array(
      fc.record({
        key: fc.constantFrom('sluice:a', 'sluice:b', 'sluice:c'),
        text: fc.option(fc.string({ maxLength: 3 }), { nil: undefined }),
        /** How many turns the write takes, so that writes overtake each other. */
        turns: fc.integer({ min: 0, max: 3 }),
        waits: fc.boolean(),
      }),
      { maxLength: 30 },
    );
    await fc.assert(
      fc.asyncProperty(changes, async (list) => {
        const device = new Map<string, string>([['sluice:a', 'old']]);
        const memory = new Map(device);
        let turns = 0;
        const later = async (work: () => void): Promise<void> => {
          for (let turn = turns; turn > 0; turn--) await settle();
          work();
        };
        const storage = createLoadedStorage(createTestClock(), assert.fail);
        const loading = storage.load({
          getItem: async (key) => device.get(key),
          getAllKeys: async () => [...device.keys()],
          setItem: (key, text) => later(() => void device.set(key, text)),
          removeItem: (key) => later(() => void device.delete(key)),
        });
        for (const change of list) {
          turns = change.turns;
          if (change.text === undefined) {
            storage.remove(change.key);
            memory.delete(change.key);
          } else {
            storage.set(change.key, change.text);
            memory.set(change.key, change.text);
          }
          if (change.waits) await settle();
        }
        await loading;
        for (let turn = 0; turn < 10 * (list.length + 1); turn++) await Promise.resolve();
        for (let turn = 0; turn < 10; turn++) await settle();
        assert.deepEqual(new Map([...device].sort()), new Map([...memory].sort()));
        for (const [key, text] of memory) assert.equal(storage.get(key), text);
        assert.deepEqual(storage.keys('sluice:').sort(), [...memory.keys()].sort());
      }),
      { numRuns: 200 },
    );
  });

  test('of a device that accepts no writes remembers every text, and no removal of what is not there', async () => {
    const clock = createTestClock();
    const device = new Map<string, string>();
    const calls: string[] = [];
    let takes = false;
    const write = async (call: string, work: () => void) => {
      calls.push(call);
      if (!takes) throw new Error('full');
      work();
    };
    const storage = createLoadedStorage(clock, () => {});
    await storage.load({
      getItem: () => null,
      getAllKeys: () => [],
      setItem: (key, text) => write(`set ${key}`, () => device.set(key, text)),
      removeItem: (key) => write(`remove ${key}`, () => device.delete(key)),
    });
    storage.set('sluice:1:user', 'ada');
    for (let n = 0; n < 100; n++) {
      storage.set(`sluice:1:q:${n}`, 'x');
      if (n % 2 === 0) await clock.advance(0);
      storage.remove(`sluice:1:q:${n}`);
    }
    storage.set('sluice:1:session', 's');
    takes = true;
    await clock.advance(120_000);
    assert.deepEqual(Object.fromEntries(device), { 'sluice:1:user': 'ada', 'sluice:1:session': 's' });
    assert.deepEqual(
      calls.filter((call) => call.startsWith('remove')),
      [],
    );
  });

  test('has twenty writes under way at most, and writes nothing that was removed before its turn', async () => {
    const clock = createTestClock();
    const { opened, open: go } = gate();
    const calls: string[] = [];
    let underWay = 0;
    let most = 0;
    const write = async (call: string) => {
      calls.push(call);
      most = Math.max(most, ++underWay);
      await opened;
      underWay--;
    };
    const storage = createLoadedStorage(clock, () => {});
    await storage.load({
      getItem: () => null,
      getAllKeys: () => [],
      setItem: (key) => write(`set ${key}`),
      removeItem: (key) => write(`remove ${key}`),
    });
    for (let n = 0; n < 50; n++) storage.set(`sluice:1:q:${n}`, 'x');
    storage.remove('sluice:1:q:49');
    go();
    for (let n = 0; n < 10; n++) await settle();
    assert.equal(most, 20);
    assert.equal(calls.length, 49);
    assert.ok(!calls.some((call) => call.endsWith(':49')));
  });

  test('is read many keys at a time if the device can', async () => {
    const phone = createPhone();
    const asked: number[] = [];
    const texts = new Map(Array.from({ length: 1_200 }, (_, n) => [`sluice:1:x${n}`, `${n}`]));
    const storage = createLoadedStorage(phone.clock, assert.fail);
    await storage.load({
      getItem: () => assert.fail('one key'),
      getAllKeys: () => [...texts.keys()],
      multiGet: (keys) => {
        asked.push(keys.length);
        return keys.map((key) => [key, texts.get(key) ?? null] as const);
      },
      setItem: () => {},
      removeItem: () => {},
    });
    assert.deepEqual(asked, [500, 500, 200]);
    assert.equal(storage.get('sluice:1:x1199'), '1199');
  });
});
