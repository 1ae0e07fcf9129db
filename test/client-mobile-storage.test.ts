// The storage of a phone: it answers later, fails, or hangs, and apps are killed in the middle of its work.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { EventMessage } from '../src/client/core/messages.js';
import { createLoadedStorage } from '../src/client/mobile/storage.js';
import { createReactNativeSluice } from '../src/client/react-native.js';
import { createTestClock, failure } from './support/client-world.js';
import { createPhone, type Phone, settle } from './support/phone.js';

const intervalMs = 15_000;

function open(phone: Phone) {
  const run = phone.open();
  const sluice = createReactNativeSluice();
  sluice.configure(run.adapters);
  sluice.setAppId('1');
  return { sluice, run };
}

function events(phone: Phone): EventMessage[] {
  return phone.server.stored.filter((message) => message.type === 'event');
}

/** A promise, and what fulfils it. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

describe('before the storage is loaded', () => {
  test('calls wait, and belong to the user that it holds, in their order and at their time', async () => {
    const phone = createPhone();
    const first = open(phone);
    await settle();
    const user = first.sluice.userId;
    first.run.kill();

    const loading = gate();
    phone.storage.before = () => loading.opened;
    const { sluice } = open(phone);
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
  test('sends its queue when it runs again, each message once and with the same id', async () => {
    const phone = createPhone();
    phone.server.answerWith = () => failure(0);
    const first = open(phone);
    for (let n = 0; n < 30; n++) first.sluice.track(`event ${n}`);
    await phone.clock.advance(intervalMs);
    const sentIds = phone.server.received[0]?.request.messages.map(({ id }) => id);
    const user = first.sluice.userId;
    first.run.kill();
    phone.server.answerWith = () => undefined;
    const second = open(phone);
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
    open(phone);
    await phone.clock.advance(5 * 60_000);
    assert.equal(phone.server.received.length, requests, 'nothing is left to be sent');
  });

  test('keeps its identity, its global properties and the choice of the user', async () => {
    const phone = createPhone();
    const first = open(phone);
    first.sluice.identify('ada@example.com');
    first.sluice.addEventProperties({ plan: 'free' });
    await settle();
    first.run.kill();
    const second = open(phone);
    second.sluice.track('a');
    await phone.clock.advance(intervalMs);
    assert.equal(second.sluice.identity, 'ada@example.com');
    assert.deepEqual({ ...events(phone)[0]?.properties }, { plan: 'free' });
    second.sluice.optOut();
    await settle();
    second.run.kill();
    const third = open(phone);
    third.sluice.track('b');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['a']);
  });
});

describe('a storage that cannot be read', () => {
  for (const call of ['getAllKeys', 'getItem']) {
    test(`(${call} fails) is not written to, is told of once, and nothing else fails`, async () => {
      const phone = createPhone();
      const first = open(phone);
      first.sluice.track('a');
      await phone.clock.advance(intervalMs);
      const user = first.sluice.userId;
      first.run.kill();
      const texts = new Map(phone.storage.texts);
      assert.ok(texts.size > 0);

      phone.storage.before = async (name) => {
        if (name.startsWith(call)) throw new Error('corrupt');
      };
      const second = open(phone);
      second.sluice.track('b');
      await phone.clock.advance(intervalMs);
      assert.deepEqual(phone.server.events(), ['a', 'b']);
      assert.notEqual(second.sluice.userId, user);
      assert.deepEqual(phone.storage.texts, texts);
      assert.equal(second.run.warnings.length, 1);
      assert.match(second.run.warnings[0] ?? '', /^Sluice: the storage cannot be read/);
      second.run.kill();

      phone.storage.before = async () => {};
      const third = open(phone);
      await settle();
      assert.equal(third.sluice.userId, user, 'the user is back with the storage');
    });
  }

  test('within 10 seconds is gone on without', async () => {
    const phone = createPhone();
    phone.storage.before = () => new Promise(() => {});
    const { sluice, run } = open(phone);
    sluice.track('a');
    await phone.clock.advance(9_999);
    assert.deepEqual([sluice.userId, run.warnings.length], [undefined, 0]);
    await phone.clock.advance(1);
    assert.match(String(sluice.userId), /^\d+$/);
    assert.equal(run.warnings.length, 1);
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['a']);
  });
});

describe('a storage that refuses writes', () => {
  test('is told of once, and everything is sent from memory', async () => {
    const phone = createPhone();
    phone.storage.before = async (name) => {
      if (name.startsWith('setItem')) throw new Error('full');
    };
    const { sluice, run } = open(phone);
    for (let n = 0; n < 10; n++) {
      sluice.track('a');
      await phone.clock.advance(intervalMs);
    }
    assert.equal(phone.server.stored.length, 10);
    assert.equal(run.warnings.length, 1);
    assert.match(run.warnings[0] ?? '', /^Sluice: the storage refuses a write/);
  });

  test('gets what comes later once it takes writes again', async () => {
    const phone = createPhone();
    phone.storage.before = async (name) => {
      if (name.startsWith('setItem')) throw new Error('full');
    };
    const { sluice, run } = open(phone);
    await settle();
    phone.storage.before = async () => {};
    sluice.identify('ada@example.com');
    await settle();
    run.kill();
    const second = open(phone);
    await settle();
    assert.equal(second.sluice.identity, 'ada@example.com');
  });
});

describe('the storage of the library', () => {
  test('leaves the keys of the app alone', async () => {
    const phone = createPhone();
    phone.storage.texts.set('cart', '3 apples');
    phone.storage.texts.set('sluice', 'a dam');
    const { sluice } = open(phone);
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
        /** Turns that the write takes; they overtake each other. */
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

  test('is given up when 20,000 changes wait for it', async () => {
    const warnings: string[] = [];
    const storage = createLoadedStorage(createTestClock(), (line) => void warnings.push(line));
    let writes = 0;
    await storage.load({
      getItem: () => null,
      getAllKeys: () => [],
      setItem: () => {
        writes++;
        return new Promise(() => {});
      },
      removeItem: () => {},
    });
    storage.set('sluice:hangs', '');
    for (let n = 0; n < 20_000; n++) storage.set(`sluice:${n}`, 'x');
    assert.deepEqual([warnings.length, writes], [0, 1]);
    storage.set('sluice:one more', 'x');
    assert.match(warnings.join(), /does not finish its writes/);
    assert.equal(storage.get('sluice:one more'), 'x');
  });

  test('may answer at once, without promises', async () => {
    const phone = createPhone();
    const texts = new Map<string, string>();
    const run = phone.open({
      storage: {
        getItem: (key) => texts.get(key) ?? null,
        setItem: (key, text) => void texts.set(key, text),
        removeItem: (key) => void texts.delete(key),
        getAllKeys: () => [...texts.keys()],
      },
    });
    const sluice = createReactNativeSluice();
    sluice.configure(run.adapters);
    sluice.setAppId('1');
    sluice.track('a');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['a']);
    assert.ok([...texts.keys()].some((key) => key === 'sluice:1:user'));
  });
});
