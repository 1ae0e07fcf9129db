// The client library in real Chromium: its operations, from a call in the page to the rows in ClickHouse.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { withoutBrowser } from '../harness/browser.js';
import { until } from '../harness/wait.js';
import { type ClientRig, libraryIn, startClientRig, userOf, warningsOf } from '../support/client-page.js';
import type { SentMessage } from '../support/collect-front.js';

/** What was sent for an environment, in order; what was sent again counts once. */
function sentOnce(rig: ClientRig, appId: string): SentMessage[] {
  const messages = rig.front.batches(appId).flatMap((batch) => batch.messages);
  return [...new Map(messages.map((message) => [message.id, message])).values()];
}

describe('the operations in a browser', { skip: withoutBrowser(), concurrency: 2 }, () => {
  let rig: ClientRig;
  before(async () => {
    rig = await startClientRig();
  });
  after(() => rig?.stop());

  describe('users and sessions', { concurrency: 1 }, () => {
    test('each visitor has a random user id of 53 bits, which all events carry, and which stays', async (t) => {
      const appId = rig.newAppId(t);
      const pages = [await rig.open({ appId }), await rig.open({ appId })] as const;
      const ids = new Set<string>();
      for (const page of pages) {
        const { userId, identity } = await userOf(page);
        assert.match(userId, /^(0|[1-9]\d*)$/);
        assert.ok(Number.isSafeInteger(Number(userId)));
        assert.equal(identity, undefined);
        ids.add(userId);
        await page.evaluate('sluice.track("One", { amount: 12.5, size: "M" })');
        await page.reload();
        await libraryIn(page);
        assert.equal((await userOf(page)).userId, userId);
        await page.evaluate('sluice.track("Two")');
      }
      assert.equal(ids.size, 2);
      const rows = await rig.stored(appId, 4);
      assert.equal(rows.length, 4);
      for (const id of ids) {
        const own = rows.filter(({ user_id }) => user_id === id);
        assert.deepEqual(own.map((row) => row.event).sort(), ['One', 'Two']);
        assert.deepEqual(own.find((row) => row.event === 'One')?.properties, { amount: '12.5', size: 'M' });
        assert.ok(own[0]?.session_id);
        assert.equal(own[0]?.session_id, own[1]?.session_id);
      }
    });

    test('identify with the same identity does nothing; with another, a new user and session begin', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId });
      const anonymous = await userOf(page);
      await page.evaluate(
        'sluice.track("Anonymous"); sluice.identify("ada@example.com"); sluice.track("Ada")',
      );
      const ada = await userOf(page);
      assert.deepEqual(ada, { userId: anonymous.userId, identity: 'ada@example.com' });
      await page.evaluate('sluice.identify("ada@example.com"); sluice.track("Ada again")');
      assert.deepEqual(await userOf(page), ada);
      await page.evaluate('sluice.identify("Ada@example.com"); sluice.track("Other")');
      const other = await userOf(page);
      assert.equal(other.identity, 'Ada@example.com');
      assert.notEqual(other.userId, ada.userId);

      const rows = await rig.stored(appId, 4);
      const session = Object.fromEntries(rows.map((row) => [row.event, row.session_id]));
      assert.equal(session['Ada again'], session.Ada);
      assert.notEqual(session.Other, session.Ada);
      const identities = sentOnce(rig, appId)
        .filter(({ type }) => type === 'identify')
        .map(({ user_id, identity }) => [user_id, identity]);
      assert.deepEqual(identities, [
        [ada.userId, 'ada@example.com'],
        [other.userId, 'Ada@example.com'],
      ]);
      const users = await until(
        async () => {
          const found = await rig.sluice.rows<{ identity: string; user_ids: string[] }>(
            `SELECT identity, user_ids FROM users WHERE app_id = '${appId}' AND identity != '' ORDER BY identity`,
          );
          return found.length === 2 && found;
        },
        { deadlineMs: 60_000, what: 'both users are there' },
      );
      assert.deepEqual(
        users.map(({ identity, user_ids }) => [identity, user_ids.map(String)]),
        [
          ['Ada@example.com', [other.userId]],
          ['ada@example.com', [ada.userId]],
        ],
      );
      const merged = await rig.sluice.rows<{ event: string; identity: string }>(
        `SELECT event, identity FROM user_events WHERE app_id = '${appId}' AND event = 'Anonymous'`,
      );
      assert.deepEqual(merged, [{ event: 'Anonymous', identity: 'ada@example.com' }]);
    });

    test('identify refuses an identity that is empty, not a string, or shared by many, with a warning', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId, allowIdentities: ['guest'] });
      const warnings = warningsOf(page);
      const before = await userOf(page);
      const refused = ['""', 'null', 'undefined', '{}', 'NaN', '"undefined"', '"user"', '"[object Object]"'];
      for (const [index, identity] of refused.entries()) {
        await page.evaluate(`sluice.identify(${identity})`);
        assert.deepEqual(await userOf(page), before, identity);
        await until(() => warnings.length > index, { deadlineMs: 60_000, what: `a warning for ${identity}` });
      }
      await page.evaluate('sluice.identify("guest")');
      assert.equal((await userOf(page)).identity, 'guest');
    });

    test('resetIdentity does nothing for an anonymous user; for others, queued events keep their user', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId, intervalMs: 60_000 });
      const anonymous = await userOf(page);
      await page.evaluate('sluice.track("0"); sluice.resetIdentity()');
      assert.deepEqual(await userOf(page), anonymous);
      await page.evaluate('sluice.track("1"); sluice.identify("ada@x.example"); sluice.track("2")');
      await page.evaluate('sluice.resetIdentity(); sluice.track("3")');
      const next = await userOf(page);
      assert.notEqual(next.userId, anonymous.userId);
      assert.equal(next.identity, undefined);
      await page.evaluate('sluice.identify("bob@x.example"); sluice.track("4")');
      assert.deepEqual(await userOf(page), { userId: next.userId, identity: 'bob@x.example' });
      assert.equal(rig.front.batches(appId).length, 0, 'all of it waited');
      await page.evaluate('sluice.flush()');

      const rows = (await rig.stored(appId, 5)).sort((a, b) => Number(a.event) - Number(b.event));
      const messages = sentOnce(rig, appId).filter(({ type }) => type === 'event');
      assert.deepEqual(
        messages.map((message) => [message.event, message.user_id, message.identity]),
        [
          ['0', anonymous.userId, undefined],
          ['1', anonymous.userId, undefined],
          ['2', anonymous.userId, 'ada@x.example'],
          ['3', next.userId, undefined],
          ['4', next.userId, 'bob@x.example'],
        ],
      );
      assert.deepEqual(
        rows.map((row) => row.identity),
        ['', '', 'ada@x.example', '', 'bob@x.example'],
      );
      const sessions = rows.map((row) => row.session_id);
      assert.deepEqual([sessions[1], sessions[2], sessions[4]], [sessions[0], sessions[0], sessions[3]]);
      assert.notEqual(sessions[3], sessions[0]);
    });

    test('a session ends after 30 idle minutes, and not before', async (t) => {
      const appId = rig.newAppId(t);
      const minute = 60_000;
      const start = Date.now();
      // This comes before the page loads, since the library takes the page's Date when it begins.
      const context = await rig.browser.newContext();
      await context.clock.install({ time: start });
      const page = await rig.open({ appId, context });
      for (const [event, atMs] of [
        ['0', 0],
        ['29', 29 * minute],
        ['58', 58 * minute],
        ['89', 89 * minute],
      ]) {
        await page.clock.setFixedTime(start + Number(atMs));
        await page.evaluate(`sluice.track(${JSON.stringify(event)})`);
      }
      await page.evaluate('sluice.flush()');
      const rows = await rig.stored(appId, 4);
      const session = Object.fromEntries(rows.map((row) => [row.event, row.session_id]));
      assert.equal(session['29'], session['0']);
      assert.equal(session['58'], session['0']);
      assert.notEqual(session['89'], session['0']);
    });

    test('another app_id has a state of its own; what waits for the former one is still sent there', async (t) => {
      const [first, second] = [rig.newAppId(t), rig.newAppId(t)];
      const page = await rig.open({ appId: first, intervalMs: 2_000 });
      await page.evaluate('sluice.identify("ada@example.com"); sluice.track("First")');
      const before = await userOf(page);
      const options = JSON.stringify({ baseUrl: rig.front.url, pageViews: false, intervalMs: 100 });
      await page.evaluate(`sluice.load("${second}", ${options}); sluice.track("Second")`);
      const after = await userOf(page);
      assert.notEqual(after.userId, before.userId);
      assert.equal(after.identity, undefined);
      assert.deepEqual(
        (await rig.stored(first, 1)).map((row) => [row.event, row.identity]),
        [['First', 'ada@example.com']],
      );
      assert.deepEqual(
        (await rig.stored(second, 1)).map((row) => [row.event, row.user_id]),
        [['Second', after.userId]],
      );
    });

    test('properties of users are stored for the anonymous and the identified', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId });
      await page.evaluate('sluice.addUserProperties({ plan: "free", age: 41 })');
      await page.evaluate('sluice.identify("ada@example.com")');
      await page.evaluate('sluice.addUserProperties({ plan: "paid", email: "ada@example.com" })');
      const user = await until(
        async () => {
          const [found] = await rig.sluice.rows<{ email: string; properties: Record<string, string> }>(
            `SELECT email, properties FROM users WHERE app_id = '${appId}' AND identity = 'ada@example.com'`,
          );
          return found?.properties.plan === 'paid' && found.properties.age !== undefined && found;
        },
        { deadlineMs: 60_000, what: 'the properties are stored' },
      );
      assert.deepEqual(user.properties, { plan: 'paid', age: '41', email: 'ada@example.com' });
      assert.equal(user.email, 'ada@example.com');
    });
  });

  describe('global event properties', { concurrency: 1 }, () => {
    test('go with page views and calls, and survive reload, identify and reset, until removed', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId, pageViews: true });
      await page.evaluate('sluice.addEventProperties({ theme: "dark", level: 3 })');
      await page.evaluate('sluice.addEventProperties({ level: 4, "naïve; key=,": "ü; =,\\"€🙂" })');
      await page.evaluate('sluice.track("1")');
      await page.evaluate('sluice.flush()');
      await page.reload();
      await libraryIn(page);
      await page.evaluate('sluice.track("2"); sluice.identify("a@b.example"); sluice.track("3")');
      await page.evaluate('sluice.resetIdentity(); sluice.track("4"); sluice.identify("c@b.example")');
      await page.evaluate('sluice.removeEventProperty("level"); sluice.track("5", { theme: "light" })');
      await page.evaluate('sluice.clearEventProperties(); sluice.track("6", { own: 1 })');
      const rows = await rig.stored(appId, 8);
      const views = rows.filter((row) => row.event === 'Page View');
      assert.deepEqual(
        views.map((row) => row.properties.theme),
        [undefined, 'dark'],
      );
      const properties = Object.fromEntries(rows.map((row) => [row.event, row.properties]));
      const all = { theme: 'dark', level: '4', 'naïve; key=,': 'ü; =,"€🙂' };
      for (const event of ['1', '2', '3', '4']) assert.deepEqual(properties[event], all, event);
      assert.deepEqual(properties['5'], { theme: 'light', 'naïve; key=,': 'ü; =,"€🙂' });
      assert.deepEqual(properties['6'], { own: '1' });
    });

    test('are in one cookie of at most 4,096 bytes; a call that does not fit is refused as a whole', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId });
      const warnings = warningsOf(page);
      const cookies = () => page.context().cookies();
      const before = (await cookies()).map(({ name }) => name);
      await page.evaluate('sluice.addEventProperties({ kept: "yes" })');
      const [own] = (await cookies()).filter(({ name }) => !before.includes(name));
      assert.ok(own, 'a cookie holds them');
      const bytes = async () => {
        const all = (await cookies()).filter(({ name }) => name === own.name);
        assert.equal(all.length, 1);
        return Buffer.byteLength(`${own.name}=${all[0]?.value}`);
      };
      assert.equal((await cookies()).length, before.length + 1);

      await page.evaluate(
        `for (let i = 0; i < 3; i++) sluice.addEventProperties({ ['big' + i]: 'x'.repeat(1020) })`,
      );
      assert.deepEqual(warnings, []);
      const full = await bytes();
      assert.ok(full > 3_000 && full <= 4_096, String(full));
      await page.evaluate(
        `sluice.addEventProperties({ small: "no", big3: '🙂'.repeat(500), kept: "changed" })`,
      );
      await until(() => warnings.length > 0, { deadlineMs: 60_000, what: 'a warning' });
      assert.equal(await bytes(), full);
      // Up to the last byte, one at a time.
      await page.evaluate(`sluice.addEventProperties({ fill: "" })`);
      const room = 4_096 - (await bytes());
      warnings.length = 0;
      await page.evaluate(`sluice.addEventProperties({ fill: 'y'.repeat(${room}) })`);
      assert.deepEqual(warnings, []);
      assert.equal(await bytes(), 4_096);
      await page.evaluate(`sluice.addEventProperties({ fill: 'y'.repeat(${room + 1}) })`);
      await until(() => warnings.length > 0, { deadlineMs: 60_000, what: 'a second warning' });

      await page.reload();
      await libraryIn(page);
      await page.evaluate('sluice.track("Full")');
      const [row] = await rig.stored(appId, 1);
      assert.deepEqual(Object.keys(row?.properties ?? {}).sort(), ['big0', 'big1', 'big2', 'fill', 'kept']);
      assert.equal(row?.properties.kept, 'yes');
      assert.equal(row?.properties.fill?.length, room);
    });
  });

  describe('limits', { concurrency: 1 }, () => {
    test('names of 255 and identities of 254 code points are accepted, longer ones are dropped with a warning', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId });
      const warnings = warningsOf(page);
      await page.evaluate(`
        sluice.track('a'.repeat(255)); sluice.track('🙂'.repeat(255));
        sluice.identify('🙂'.repeat(254));`);
      assert.deepEqual(warnings, []);
      const user = await userOf(page);
      assert.equal([...(user.identity ?? '')].length, 254);
      await page.evaluate(`
        sluice.track('a'.repeat(256)); sluice.track('🙂'.repeat(256)); sluice.track('');
        sluice.identify('b'.repeat(255)); sluice.identify('🙂'.repeat(255)); sluice.identify('');`);
      await until(() => warnings.length >= 6, { deadlineMs: 60_000, what: 'six warnings' });
      assert.deepEqual(await userOf(page), user);
      await page.evaluate(`sluice.identify('b'.repeat(254)); sluice.track('Last')`);
      const rows = await rig.stored(appId, 3);
      const names = rows.map((row) => row.event).sort();
      assert.deepEqual(names, ['a'.repeat(255), '🙂'.repeat(255), 'Last'].sort());
      assert.equal(rows.find((row) => row.event === 'Last')?.identity, 'b'.repeat(254));
      assert.equal(await page.evaluate('sluice.droppedCount'), 0, 'the server refused none');
    });

    test('properties that are too long, of a wrong type or reserved are dropped, and the rest is sent', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId });
      const warnings = warningsOf(page);
      await page.evaluate(`
        const bad = {
          user_id: 1, session_id: 's', screen_name: 'n',
          null: null, undefined: undefined, nan: NaN, infinite: -Infinity, object: {}, list: [1],
          function() {}, symbol: Symbol('s'), big: 10n, date: new Date(0),
          long: 'x'.repeat(1024), longEmoji: '🙂'.repeat(1024), ['k'.repeat(1024)]: 'long key',
        };
        const good = { number: -0.5, empty: '', text: '🙂'.repeat(1023), ['k'.repeat(1023)]: 'key' };
        sluice.track('Mixed', { ...bad, ...good });
        sluice.track('Bad only', bad);`);
      const rows = await rig.stored(appId, 2);
      const properties = Object.fromEntries(rows.map((row) => [row.event, row.properties]));
      assert.equal(rows.length, 2);
      for (const name of ['user_id', 'session_id', 'screen_name', 'nan', 'infinite', 'object']) {
        assert.equal(properties.Mixed?.[name], undefined, name);
        assert.ok(
          warnings.some((line) => line.includes(name)),
          `a warning names ${name}`,
        );
      }
      const good = { number: '-0.5', empty: '', text: '🙂'.repeat(1023), ['k'.repeat(1023)]: 'key' };
      for (const [key, value] of Object.entries(good)) assert.equal(properties.Mixed?.[key], value);
      for (const name of [
        'null',
        'undefined',
        'function',
        'symbol',
        'date',
        'long',
        'longEmoji',
        'k'.repeat(1024),
      ]) {
        assert.equal(properties.Mixed?.[name], undefined, name);
      }
      assert.equal(await page.evaluate('sluice.droppedCount'), 0, 'the server refused none');
    });

    test('values of user properties have at most 255 characters, and the key user_id is refused', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId });
      await page.evaluate(`sluice.identify('p@x.example');
        sluice.addUserProperties({ fits: '🙂'.repeat(255), long: 'x'.repeat(256), user_id: 5, flag: true, n: 7 });`);
      await page.evaluate('sluice.flush()');
      const user = await until(
        async () =>
          (
            await rig.sluice.rows<{ properties: Record<string, string> }>(
              `SELECT properties FROM users WHERE app_id = '${appId}' AND identity = 'p@x.example'`,
            )
          ).find(({ properties }) => properties.n),
        { deadlineMs: 60_000, what: 'the properties are stored' },
      );
      assert.deepEqual(user.properties, { fits: '🙂'.repeat(255), n: '7', flag: 'true' });
    });

    test('nothing throws into the page, whatever the arguments, and the library still works', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId, intervalMs: 200 });
      const uncaught: string[] = [];
      page.on('pageerror', (error) => uncaught.push(error.message));
      const thrown = await page.evaluate(`(async () => {
        const cyclic = {}; cyclic.self = cyclic;
        const trap = new Proxy({}, { get() { throw new Error('get') }, ownKeys() { throw new Error('keys') } });
        const { proxy, revoke } = Proxy.revocable({}, {}); revoke();
        // Its own callers handle these rejections; no other one may be uncaught on the page.
        const rejected = Promise.reject(new Error('theirs')); rejected.catch(() => undefined);
        const values = [
          undefined, null, true, 0, -0, NaN, Infinity, 10n, '', 'x', 'x'.repeat(1e6), '\\ud800', Symbol('s'),
          () => 1, class A {}, [], [1, [2]], new Date(NaN), /x/, new Map([['a', 1]]), new Error('e'), document,
          window, cyclic, trap, proxy, Object.create(null), { get a() { throw new Error('getter') }, b: 1 },
          { toString() { throw new Error('text') } }, { toJSON() { throw new Error('json') }, a: 1 },
          JSON.parse('{"__proto__": {"a": 1}, "constructor": "c", "hasOwnProperty": 1}'),
          Object.fromEntries(Array.from({ length: 2000 }, (_, i) => ['k' + i, 'v'])),
          new String('boxed'), new Uint8Array(4), rejected,
        ];
        const names = ['track', 'identify', 'resetIdentity', 'addUserProperties', 'addEventProperties',
          'removeEventProperty', 'clearEventProperties', 'flush', 'load', 'optOut', 'optIn'];
        const thrown = [];
        for (const name of names) {
          for (const first of values) for (const rest of [[], [values[23]], [trap], [undefined, 1, 2]]) {
            try { await sluice[name](first, ...rest) } catch (error) { thrown.push(name + ': ' + error) }
          }
          try { sluice[name].call(undefined); const { [name]: bare } = sluice; bare('x', { a: 1 }) }
          catch (error) { thrown.push(name + ' without this: ' + error) }
        }
        return thrown;
      })()`);
      assert.deepEqual(thrown, []);
      const options = JSON.stringify({ baseUrl: rig.front.url, pageViews: false, intervalMs: 100 });
      await page.evaluate(`sluice.load("${appId}", ${options}); sluice.optIn(); sluice.clearEventProperties();
        sluice.track("Still there", { a: 1 })`);
      await until(async () => (await rig.stored(appId, 1)).some((row) => row.event === 'Still there'), {
        deadlineMs: 60_000,
        what: 'a later event is stored',
      });
      assert.deepEqual(uncaught, []);
    });
  });

  describe('opting out', { concurrency: 1 }, () => {
    test('stops recording and sending, also after a reload, until the visitor opts in', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId, pageViews: true, intervalMs: 60_000 });
      await page.evaluate('sluice.track("Waiting when opting out"); sluice.optOut(); sluice.track("Out")');
      await page.evaluate(
        'sluice.identify("ada@example.com"); sluice.addUserProperties({ a: 1 }); sluice.flush()',
      );
      await page.reload();
      await page.waitForFunction('sluice.droppedCount !== undefined');
      await page.evaluate('sluice.track("Out too"); sluice.flush()');
      assert.equal(rig.front.batches(appId).length, 0);
      await page.evaluate('sluice.optIn(); sluice.track("In"); sluice.flush()');
      const rows = await rig.stored(appId, 1);
      assert.deepEqual(
        rows.map((row) => row.event).filter((name) => name !== 'Page View'),
        ['In'],
      );
    });

    test('can be the state that a page begins with: nothing is stored or sent before opting in', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId, pageViews: true, optedOut: true, wait: false });
      await page.waitForFunction('sluice.droppedCount !== undefined');
      await page.evaluate('sluice.track("Out"); sluice.addEventProperties({ a: 1 }); sluice.flush()');
      assert.deepEqual(await page.context().cookies(), []);
      assert.equal(await page.evaluate('localStorage.length'), 0);
      assert.equal(rig.front.batches(appId).length, 0);
      await page.evaluate('sluice.optIn(); sluice.track("In")');
      await page.reload();
      await libraryIn(page);
      await page.evaluate('sluice.track("Still in"); sluice.flush()');
      const rows = await rig.stored(appId, 3);
      const names = rows.map((row) => row.event).filter((name) => name !== 'Page View');
      assert.deepEqual(names, ['In', 'Still in']);
    });
  });
});
