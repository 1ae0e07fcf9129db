// What the mobile surfaces do beyond the core: sessions, changes of the app, the conversions of Android, the interval of
// iOS, screen views; and no argument makes them throw.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { noIgnoredFields } from '../../src/ingest/ignored-fields.js';
import { checkMessage } from '../../src/ingest/message.js';
import { createAndroidSluice } from '../../src/libraries/client/android.js';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import type { EventMessage, Message } from '../../src/libraries/client/core/messages.js';
import { createIosSluice } from '../../src/libraries/client/ios.js';
import { createReactNativeSluice } from '../../src/libraries/client/react-native.js';
import { failure } from '../support/client-world.js';
import fc from '../support/fast-check.js';
import {
  baseUrl,
  createPhone,
  openAndroid,
  openIos,
  openReactNative,
  type Phone,
  settle,
  startAndroid,
  startIos,
  startReactNative,
} from '../support/phone.js';

const minuteMs = 60_000;
const intervalMs = 15_000;

function events(messages: readonly Message[]): EventMessage[] {
  return messages.filter((message) => message.type === 'event');
}

function eventNamed(phone: Phone, name: string): EventMessage {
  const found = events(phone.server.stored).find(({ event }) => event === name);
  assert.ok(found !== undefined, `${name} has arrived`);
  return found;
}

describe('sessions on a phone', () => {
  test('begin with each setAppId and keep the user', async () => {
    const { phone, sluice } = startReactNative();
    sluice.track('a');
    sluice.setAppId('1');
    sluice.track('b');
    await phone.clock.advance(intervalMs);
    const [a, b] = events(phone.server.stored);
    assert.notEqual(a?.session_id, b?.session_id);
    assert.equal(a?.user_id, b?.user_id);
    assert.equal(a?.user_id, sluice.userId);
  });

  test('begin with each init on Android', async () => {
    const { phone, sluice, context } = startAndroid();
    sluice.track('a');
    sluice.init(context, '1');
    sluice.track('b');
    await phone.clock.advance(intervalMs);
    assert.notEqual(eventNamed(phone, 'a').session_id, eventNamed(phone, 'b').session_id);
  });

  test('last until five minutes pass without a call', async () => {
    const { phone, sluice } = startIos();
    sluice.track('first');
    await phone.clock.advance(5 * minuteMs);
    sluice.track('just in time');
    await phone.clock.advance(5 * minuteMs + 1);
    sluice.track('too late');
    await phone.clock.advance(intervalMs);
    const session = eventNamed(phone, 'first').session_id;
    assert.equal(eventNamed(phone, 'just in time').session_id, session);
    assert.notEqual(eventNamed(phone, 'too late').session_id, session);
  });
});

describe('Android', () => {
  test('sends keys and values of an event as text and drops nulls', async () => {
    const { phone, sluice, run } = startAndroid();
    sluice.track(
      'map',
      new Map<string | number, string | number | boolean | bigint | null>([
        [1, 2.5],
        ['yes', true],
        ['big', 2n ** 60n],
        ['text', 'as it is'],
        ['none', null],
        [null as never, 'no key'],
        ['__proto__', 'a key'],
      ]),
    );
    sluice.track('object', { amount: 0.1, no: false, absent: undefined, none: null });
    sluice.track('no map', null);
    sluice.track('nothing');
    await phone.clock.advance(intervalMs);
    const properties = Object.fromEntries(
      events(phone.server.stored).map((message) => [message.event, Object.entries(message.properties)]),
    );
    assert.deepEqual(properties, {
      map: [
        ['1', '2.5'],
        ['yes', 'true'],
        ['big', '1152921504606846976'],
        ['text', 'as it is'],
        ['__proto__', 'a key'],
      ],
      object: [
        ['amount', '0.1'],
        ['no', 'false'],
      ],
      'no map': [],
      nothing: [],
    });
    assert.deepEqual(run.warnings, []);
  });

  test('refuses values without a text of their own with a warning, and sends the rest', async () => {
    const { phone, sluice, run } = startAndroid();
    const hostile = {
      nan: Number.NaN,
      object: {},
      get secret() {
        throw new Error('not for you');
      },
      good: 1,
    };
    sluice.track('e', hostile as never);
    sluice.track('text', 'abc' as never);
    await phone.clock.advance(intervalMs);
    assert.deepEqual({ ...eventNamed(phone, 'e').properties }, { good: '1' });
    assert.deepEqual({ ...eventNamed(phone, 'text').properties }, {});
    assert.equal(run.warnings.length, 4);
    for (const [at, key] of ['nan', 'object', 'secret', 'the properties'].entries()) {
      assert.match(run.warnings[at] ?? '', new RegExp(key));
    }
  });

  test('refuses keys without a text of their own, and keeps the event even if its map cannot be read', async () => {
    const { phone, sluice, run } = startAndroid();
    class Broken extends Map<string, string> {
      override [Symbol.iterator](): never {
        throw new Error('not for you');
      }
    }
    const noText = { toString: () => assert.fail('never called') };
    const revoked = Proxy.revocable({}, {});
    revoked.revoke();
    const keys: unknown[] = [noText, {}, [], Symbol('s'), () => 1, Number.NaN, 'good'];
    sluice.track('keys', new Map(keys.map((key) => [key, 1])) as never);
    sluice.track('a broken map', new Broken([['a', 'b']]));
    sluice.track('a proxy', revoked.proxy);
    sluice.track('a date', new Date(0) as never);
    sluice.track('an empty map', new Map());
    const entries: [unknown, number][] = [
      [{}, 1],
      ['age', 36],
    ];
    sluice.addUserProperties(new Map(entries) as never);
    await phone.clock.advance(intervalMs);
    assert.deepEqual(
      phone.server.stored.map((message) => 'properties' in message && { ...message.properties }),
      [{ good: '1' }, {}, {}, {}, {}, { age: 36 }],
    );
    const ofKeys = run.warnings.filter((line) => line.includes('of their keys are neither'));
    const ofMaps = run.warnings.filter((line) => line.includes('not a readable object'));
    assert.match(ofKeys.join(), /dropped: 6 of their keys.*dropped: 1 of their keys/);
    assert.deepEqual([ofMaps.length, run.warnings.length], [3, 5], run.warnings.join('\n'));
  });

  test('attaches global properties as text, and removes and clears them', async () => {
    const { phone, sluice } = startAndroid();
    sluice.addEventProperties(new Map([['level', 3]]));
    sluice.addEventProperties({ dark: true, plan: 'free' });
    sluice.addEventProperties(null);
    sluice.track('a');
    sluice.removeEventProperty('dark');
    sluice.track('b');
    sluice.addEventProperties(new Map([[7, 'seven']]));
    sluice.removeEventProperty(7);
    sluice.track('c');
    sluice.clearEventProperties();
    sluice.track('d');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(
      events(phone.server.stored).map(({ properties }) => ({ ...properties })),
      [
        { level: '3', dark: 'true', plan: 'free' },
        { level: '3', plan: 'free' },
        { level: '3', plan: 'free' },
        {},
      ],
    );
  });

  test('leaves numbers of user properties numbers, from a map or an object', async () => {
    const { phone, sluice } = startAndroid();
    sluice.addUserProperties(new Map<string, string | number>([['age', 36]]));
    await phone.clock.advance(intervalMs);
    sluice.addUserProperties({ plan: 'paid', seats: 4 });
    await phone.clock.advance(intervalMs);
    assert.deepEqual(
      phone.server.stored.map((message) => message.type === 'user_properties' && { ...message.properties }),
      [{ age: 36 }, { plan: 'paid', seats: 4 }],
    );
  });
});

describe('changeInterval of iOS', () => {
  test('takes effect at the next send', async () => {
    const { phone, sluice } = startIos();
    await settle();
    sluice.track('a');
    sluice.changeInterval(60);
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['a']);
    sluice.track('b');
    await phone.clock.advance(60_000 - 1);
    assert.deepEqual(phone.server.events(), ['a']);
    await phone.clock.advance(1);
    assert.deepEqual(phone.server.events(), ['a', 'b']);
    sluice.changeInterval(0.5);
    sluice.track('c');
    await phone.clock.advance(499);
    assert.deepEqual(phone.server.events(), ['a', 'b']);
    await phone.clock.advance(1);
    assert.deepEqual(phone.server.events(), ['a', 'b', 'c']);
  });

  test('applies to later apps too, even if it was called before the first', async () => {
    const { phone, sluice } = openIos();
    sluice.changeInterval(1);
    sluice.setAppId('1');
    await settle();
    sluice.setAppId('2');
    sluice.track('a');
    await phone.clock.advance(1_000);
    assert.deepEqual(phone.server.events(), ['a']);
  });

  test('refuses anything but a positive number, with a warning', async () => {
    const { phone, sluice, run } = startIos();
    await settle();
    const refused = [Number.NaN, 0, -0, -1, Number.POSITIVE_INFINITY, '5', null, undefined, 5n, {}];
    for (const [at, seconds] of refused.entries()) {
      sluice.changeInterval(seconds as number);
      assert.match(run.warnings[at] ?? '', /changeInterval is ignored/, String(seconds));
    }
    sluice.track('a');
    await phone.clock.advance(intervalMs - 1);
    assert.deepEqual(phone.server.events(), []);
    await phone.clock.advance(1);
    assert.deepEqual(phone.server.events(), ['a']);
  });
});

describe('userId', () => {
  test('of iOS is a string at any time, and the user id as soon as the storage is loaded', async () => {
    const { phone, sluice } = openIos();
    assert.equal(sluice.userId, '');
    sluice.setAppId('1');
    assert.equal(sluice.userId, '');
    await settle();
    assert.match(sluice.userId, /^\d{1,16}$/);
    sluice.track('a');
    await phone.clock.advance(intervalMs);
    assert.equal(eventNamed(phone, 'a').user_id, sluice.userId);
  });

  test('and identity of React Native belong to the current user', async () => {
    const { sluice } = openReactNative();
    assert.deepEqual([sluice.userId, sluice.identity], [undefined, undefined]);
    sluice.setAppId('1');
    sluice.identify('ada@example.com');
    await settle();
    const user = sluice.userId;
    assert.match(String(user), /^\d{1,16}$/);
    assert.equal(sluice.identity, 'ada@example.com');
    sluice.resetIdentity();
    assert.equal(sluice.identity, undefined);
    assert.notEqual(sluice.userId, user);
  });
});

describe('screen views', () => {
  test('are captured automatically, with global properties, and may have any length', async () => {
    const { phone, sluice, run } = openReactNative();
    sluice.addEventProperties({ plan: 'free' });
    run.showScreen('Start');
    sluice.setAppId('1');
    run.showScreen('n'.repeat(2_000));
    await phone.clock.advance(intervalMs);
    const views = events(phone.server.stored);
    assert.deepEqual(
      views.map(({ event, autocaptured }) => [event, autocaptured]),
      [
        ['Screen View', true],
        ['Screen View', true],
      ],
    );
    assert.deepEqual({ ...views[0]?.properties }, { screen_name: 'Start', plan: 'free' });
    assert.deepEqual({ ...views[1]?.properties }, { screen_name: 'n'.repeat(1023), plan: 'free' });
    assert.deepEqual(run.warnings, []);
  });

  test('are off by an option, on all surfaces', async () => {
    for (const open of [openReactNative, openIos]) {
      const { phone, sluice, run } = open();
      sluice.configure({ ...run.adapters, screenViews: false });
      sluice.setAppId('1');
      run.showScreen('Start');
      sluice.track('own');
      await phone.clock.advance(intervalMs);
      assert.deepEqual(phone.server.events(), ['own']);
    }
    const { phone, sluice, run, context } = openAndroid();
    const { clock, randomBytes } = run.adapters;
    sluice.configure({ baseUrl, screenViews: false, clock, randomBytes });
    sluice.init(context, '1');
    run.showScreen('Start');
    sluice.track('own');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['own']);
  });

  test('without a name are dropped with a warning', async () => {
    const { phone, run } = startIos();
    for (const name of ['', undefined, 5]) run.showScreen(name as string);
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), []);
    assert.equal(run.warnings.length, 3);
  });

  test('cannot be forged by track: screen_name is reserved', async () => {
    const { phone, sluice, run } = startIos();
    sluice.track('own', { screen_name: 'x', other: 1 });
    await phone.clock.advance(intervalMs);
    assert.deepEqual({ ...eventNamed(phone, 'own').properties }, { other: 1 });
    assert.match(run.warnings.join(), /screen_name/);
  });
});

describe('sending from a phone', () => {
  test('does not wait for the interval when the app goes to the background', async () => {
    const { phone, sluice, run } = startReactNative();
    sluice.track('a');
    await settle();
    run.leaveFront();
    await settle();
    assert.deepEqual(phone.server.events(), ['a']);
    await phone.clock.advance(minuteMs);
    assert.equal(phone.server.received.length, 1);
  });

  test('is tried again right away when the app comes back or the network does', async () => {
    for (const back of ['comeToFront', 'networkBack'] as const) {
      const { phone, sluice, run } = openIos();
      sluice.setAppId('1');
      phone.server.answerWith = () => failure(0);
      sluice.track('a');
      await phone.clock.advance(5 * minuteMs);
      const attempts = phone.server.received.length;
      phone.server.answerWith = () => undefined;
      run[back]();
      await phone.clock.advance(clientLimits.resumeMs);
      assert.deepEqual([back, phone.server.received.length], [back, attempts + 1]);
      assert.deepEqual(phone.server.events(), ['a']);
    }
  });

  test('obeys Retry-After', async () => {
    const { phone, sluice, run } = startIos();
    phone.server.answerWith = () => failure(503, 'overloaded', '120');
    sluice.track('a');
    await phone.clock.advance(intervalMs);
    phone.server.answerWith = () => undefined;
    run.comeToFront();
    await phone.clock.advance(120_000 - 1);
    assert.equal(phone.server.received.length, 1);
    await phone.clock.advance(minuteMs);
    assert.deepEqual(phone.server.events(), ['a']);
  });

  test('gives up a request that is not answered in time, and repeats it', async () => {
    const phone = createPhone();
    const run = phone.open();
    let requests = 0;
    const signals: (AbortSignal | undefined)[] = [];
    const sizes: number[] = [];
    const { sluice } = openReactNative(phone, {
      ...run,
      adapters: {
        ...run.adapters,
        fetch: (url, init) => {
          requests++;
          signals.push(init.signal as AbortSignal | undefined);
          sizes.push(init.body.length);
          if (requests === 1) return new Promise(() => {});
          return (run.adapters.fetch ?? assert.fail())(url, init);
        },
      },
    });
    sluice.setAppId('1');
    const names = Array.from({ length: 60 }, (_, n) => `e${n}`);
    for (const name of names) sluice.track(name, { text: 'x'.repeat(900) });
    await phone.clock.advance(minuteMs);
    assert.deepEqual(phone.server.events(), names);
    assert.deepEqual(
      signals.map((signal) => signal?.aborted),
      [true, ...Array.from({ length: requests - 1 }, () => false)],
    );
    assert.ok((sizes[1] ?? 0) < 0.6 * (sizes[0] ?? 0), `half as much: ${sizes}`);
  });
});

describe('consent on a phone', () => {
  test('is required first if the app says so', async () => {
    const phone = createPhone();
    const run = phone.open();
    const sluice = createIosSluice();
    sluice.configure({ ...run.adapters, optedOut: true });
    sluice.setAppId('1');
    sluice.track('never');
    sluice.optIn();
    sluice.track('now');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['now']);
  });
});

describe('a surface', () => {
  test('ignores every operation before configure, with a warning', (context) => {
    const warned = context.mock.method(console, 'warn', () => {});
    const [reactNative, ios, android] = [createReactNativeSluice(), createIosSluice(), createAndroidSluice()];
    const calls: (() => void)[] = [
      () => reactNative.setAppId('1'),
      () => reactNative.track('a'),
      () => reactNative.optOut(),
      () => ios.setAppId('1'),
      () => ios.changeInterval(5),
      () => ios.startEVPairing(),
      () => android.init({}, '1'),
      () => android.track('a', null),
    ];
    for (const [at, call] of calls.entries()) {
      call();
      assert.equal(warned.mock.callCount(), at + 1, String(call));
      assert.match(
        String(warned.mock.calls[at]?.arguments[0]),
        /^Sluice: .*call configure\(\{ baseUrl \}\) first/,
      );
    }
    assert.deepEqual([reactNative.userId, reactNative.identity, ios.userId], [undefined, undefined, '']);
  });

  test('refuses options without a usable base URL or random numbers, and says which', (context) => {
    const warnings: string[] = [];
    const warn = (line: string) => void warnings.push(line);
    const refused: [unknown, RegExp][] = [
      [undefined, /./],
      [null, /./],
      [{ warn }, /baseUrl is missing/],
      [{ baseUrl: 5, warn }, /baseUrl is missing/],
      [{ baseUrl: '', warn }, /baseUrl must be an http or https address/],
      [{ baseUrl: 'events.example', warn }, /baseUrl must be an http or https address/],
      [{ baseUrl: 'ftp://events.example', warn }, /baseUrl must be an http or https address/],
      [{ baseUrl: 'https://', warn }, /baseUrl must be an http or https address/],
      [{ baseUrl: 'https://events.example?x=1', warn }, /baseUrl must be an http or https address/],
    ];
    context.mock.method(console, 'warn', warn);
    for (const [options, reason] of refused) {
      warnings.length = 0;
      createReactNativeSluice().configure(options as never);
      assert.equal(warnings.length, 1);
      assert.match(warnings[0] ?? '', /^Sluice: configure is ignored: /);
      assert.match(warnings[0] ?? '', reason);
    }
    warnings.length = 0;
    context.mock.getter(globalThis, 'crypto', () => undefined);
    createReactNativeSluice().configure({ baseUrl, warn });
    assert.match(warnings.join(), /crypto\.getRandomValues/);
  });

  test('says when there is nothing to send with', (context) => {
    const phone = createPhone();
    const { fetch: _, ...adapters } = phone.open().adapters;
    const warnings: string[] = [];
    const { fetch: platformFetch } = globalThis;
    context.after(() => {
      globalThis.fetch = platformFetch;
    });
    Reflect.deleteProperty(globalThis, 'fetch');
    createReactNativeSluice().configure({ ...adapters, warn: (line) => void warnings.push(line) });
    assert.match(warnings.join(), /there is no fetch/);
  });

  test('that is configured again keeps its phone, and listens to it once', async () => {
    const { phone, sluice, run } = openIos();
    sluice.configure(run.adapters);
    sluice.setAppId('1');
    run.showScreen('Start');
    assert.equal(run.shakeListenerCount(), 1);
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.server.events(), ['Screen View']);
  });

  test('refuses identities that many would share, except the ones that it allows', async () => {
    const { phone, sluice, run } = openIos();
    sluice.configure({ ...run.adapters, allowIdentities: ['user'] });
    sluice.setAppId('1');
    for (const identity of ['null', 'user', '', 'i'.repeat(255)]) sluice.identify(identity);
    await phone.clock.advance(intervalMs);
    assert.deepEqual(
      phone.server.stored.map(({ type, identity }) => [type, identity]),
      [['identify', 'user']],
    );
    assert.equal(run.warnings.length, 3);
  });

  test('sends to a base URL with a path, or with a slash at its end', async () => {
    for (const given of ['https://h.example/sluice', 'https://h.example/sluice/', 'http://h.example:8080']) {
      const { phone, sluice, run } = openReactNative();
      sluice.configure({ ...run.adapters, baseUrl: given });
      sluice.setAppId('1');
      sluice.track('a');
      await phone.clock.advance(intervalMs);
      assert.equal(phone.server.received[0]?.url, `${given.replace(/\/$/, '')}/api/collect`);
    }
  });

  test('throws nothing, whatever the arguments', async (context) => {
    context.mock.method(console, 'warn', () => {});
    const phone = createPhone();
    const hostile: unknown[] = [
      undefined,
      null,
      5,
      '',
      Symbol('s'),
      () => {},
      [],
      new Map([[{}, {}]]),
      new Proxy({}, { ownKeys: () => assert.fail('never'), get: () => assert.fail('never') }),
    ];
    for (const value of hostile) {
      const run = phone.open();
      const surfaces = [
        openIos(phone, run).sluice,
        openReactNative(phone, run).sluice,
        openAndroid(phone, run).sluice,
        createIosSluice(),
      ];
      for (const surface of surfaces) {
        for (const name of Object.keys(surface)) {
          const operation = surface[name as keyof typeof surface] as unknown;
          if (typeof operation !== 'function') continue;
          operation(value, value);
          operation('1', value);
          operation(value, '1');
        }
      }
      await settle();
    }
    await phone.clock.advance(minuteMs);
  });

  test('sends nothing that the service would refuse, and throws nothing, whatever the arguments of an operation', async () => {
    const anything = fc.anything({
      key: fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('user_id', 'screen_name', '__proto__')),
      maxDepth: 2,
      withBigInt: true,
      withBoxedValues: true,
      withDate: true,
      withMap: true,
      withNullPrototype: true,
      withObjectString: true,
      withSet: true,
      withSparseArray: true,
      withTypedArray: true,
    });
    const text = fc
      .tuple(fc.constantFrom('a', '€', '😀', '\ud83d'), fc.constantFrom(0, 1, 254, 255, 256, 1023, 1024))
      .map(([character, length]) => character.repeat(length));
    const value = fc.oneof(
      text,
      anything,
      fc.double(),
      fc.constantFrom(Symbol('s'), () => 1),
    );
    const map = fc
      .array(fc.tuple(fc.oneof(text, value), value), { maxLength: 5 })
      .map((pairs) => new Map(pairs));
    const object = fc
      .array(fc.tuple(text, value), { maxLength: 5 })
      .map((pairs) => Object.fromEntries(pairs));
    const argument = fc.oneof(text, map, object, value);
    const operation = fc.constantFrom(
      'track',
      'identify',
      'addUserProperties',
      'addEventProperties',
      'removeEventProperty',
    );
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(openIos, openReactNative, openAndroid),
        fc.array(fc.tuple(operation, argument, argument), { maxLength: 8 }),
        async (open, calls) => {
          const phone = createPhone();
          const { sluice, run } = open(phone);
          if ('init' in sluice) sluice.init(run.adapters, '1');
          else sluice.setAppId('1');
          for (const [name, ...given] of calls) (sluice[name] as (...given: unknown[]) => void)(...given);
          sluice.track('last');
          await phone.clock.advance(intervalMs);
          assert.equal(phone.server.events().at(-1), 'last');
          assert.ok(!run.warnings.some((line) => /inside the library|cannot be read\.$/.test(line)));
          for (const { request } of phone.server.received) {
            const sentMs = Date.parse(request.sent_at);
            const ignored = noIgnoredFields();
            const context = {
              appId: '1',
              lenient: false,
              keyspace: 'shared' as const,
              surrogates: true,
              sentMs,
              receivedMs: sentMs,
              ignored,
            };
            for (const message of request.messages) {
              const checked = checkMessage(
                message,
                { ...context, allowedIdentities: new Set() },
                { note: assert.fail, longNumerals: new Set(), flattenedBytesLeft: 0 },
              );
              assert.ok(!('code' in checked), JSON.stringify([checked, message]));
            }
            assert.equal(ignored.count, 0, [...ignored.names].join());
          }
        },
      ),
      { numRuns: 500 },
    );
  });

  test('survives adapters that throw, each with a warning', async () => {
    const phone = createPhone();
    const fail = (): never => {
      throw new Error('native module is missing');
    };
    const { sluice, run } = openIos(
      phone,
      phone.open({
        appState: { addEventListener: fail },
        onScreen: fail,
        onOnline: fail,
        onShake: fail,
        showPairingCode: fail,
        hidePairingCode: fail,
        fetch: fail,
        storage: { getItem: fail, setItem: fail, removeItem: fail, getAllKeys: fail },
      }),
    );
    sluice.setAppId('1');
    sluice.track('a');
    sluice.startEVPairing();
    await phone.clock.advance(minuteMs);
    sluice.stopEVPairing();
    sluice.disableVisualizerPairingGesture();
    for (const name of ['appState', 'onScreen', 'onOnline', 'onShake']) {
      assert.ok(
        run.warnings.some((line) => line.includes(`the adapter ${name} failed: native module is missing`)),
        name,
      );
    }
    assert.ok(run.warnings.some((line) => line.includes('the storage cannot be read')));
  });
});
