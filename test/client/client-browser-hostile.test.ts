// The client library in real Chromium, in pages that replace the browser's functions and forbid everything they can. No fault of the
// library reaches the page, and each event arrives once, for the right user.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { CDPSession, Page } from 'playwright-core';
import { withoutBrowser } from '../harness/browser.js';
import { until } from '../harness/wait.js';
import { clientRig, type PageOptions } from '../support/client-page.js';
import type { SentMessage } from '../support/collect-front.js';

type User = { readonly userId: string; readonly identity?: string };

/** A page that runs without the driver's own scripts, since those use what the page has replaced. */
type HostilePage = {
  readonly page: Page;
  /** Settles with the value of the code; rejects if it throws. */
  run<T>(code: string): Promise<T>;
  user(): Promise<User>;
  libraryIn(): Promise<void>;
};

/** Runs before all other scripts of a page, and records which of the library's faults reach the page. */
const trap = `<script>{
  const note = ({ message, reason, violatedDirective }) =>
    (window.trapped = window.trapped || []).push(String(message || reason || violatedDirective));
  for (const type of ['error', 'unhandledrejection', 'securitypolicyviolation']) addEventListener(type, note, true);
}</script>`;

const rig = await clientRig();

describe('in a hostile page', { skip: withoutBrowser(), concurrency: 2 }, () => {
  async function open(options: PageOptions): Promise<HostilePage> {
    const head = options.html === undefined ? { head: trap + (options.head ?? '') } : {};
    const page = await rig.open({ ...options, ...head, wait: false });
    const opened = drive(page, await page.context().newCDPSession(page));
    if (options.wait !== false) await opened.libraryIn();
    return opened;
  }

  /** Leaves the page, which must not have seen anything of the library's faults. */
  async function leave({ page, run }: HostilePage): Promise<void> {
    assert.deepEqual(await run('window.trapped || []'), []);
    await page.goto('about:blank');
  }

  /** The messages that were sent for an environment. A message that was sent again counts once, in its first form. */
  function sentOnce(appId: string): SentMessage[] {
    const messages = rig.front.batches(appId).flatMap((batch) => batch.messages);
    return [...new Map(messages.reverse().map((message) => [message.id, message])).values()].reverse();
  }

  /** Asserts that exactly these events are stored, each for its identity or for the anonymous user's id. */
  async function assertArrived(appId: string, expected: readonly (readonly [event: string, user: User])[]) {
    const rows = await rig.stored(appId, expected.length);
    const shown = rows.map((row) => [row.event, row.identity === '' ? row.user_id : row.identity]);
    const due = expected.map(([event, user]) => [event, user.identity ?? user.userId]);
    assert.deepEqual(shown.sort(), due.sort());
    // A row with an identity no longer has the user id, so the ids are compared as they were sent.
    const sent = sentOnce(appId).filter(({ type }) => type === 'event');
    assert.deepEqual(
      sent.map((message) => [message.event, message.user_id]).sort(),
      expected.map(([event, user]) => [event, user.userId]).sort(),
    );
    return rows;
  }

  /** Calls every operation, and asserts that everything arrives and the page sees no fault. */
  async function assertServed(hostile: HostilePage, appId: string): Promise<void> {
    const { run } = hostile;
    const anonymous = await hostile.user();
    await run(`sluice.addEventProperties({ plan: 'free' }); sluice.track('First', { a: 1 });
      sluice.identify('ada@example.com'); sluice.addUserProperties({ b: 2 }); sluice.flush()`);
    const ada = await hostile.user();
    assert.deepEqual(ada, { userId: anonymous.userId, identity: 'ada@example.com' });
    await run(`sluice.resetIdentity(); sluice.removeEventProperty('plan'); sluice.track('Second')`);
    const next = await hostile.user();
    await until(() => sentOnce(appId).length >= 5, 'the messages are sent');
    await run(`sluice.track('Leaving')`);
    await leave(hostile);
    const rows = await assertArrived(appId, [
      ['Page View', anonymous],
      ['First', anonymous],
      ['Second', next],
      ['Leaving', next],
    ]);
    const properties = new Map(rows.map((row) => [row.event, row.properties]));
    assert.deepEqual(properties.get('First'), { a: '1', plan: 'free' });
    assert.deepEqual(properties.get('Second'), {});
    assert.equal(properties.get('Page View')?.title, 'Shop');
    for (const row of rows) assert.ok(Math.abs(row.time_ms - Date.now()) < 120_000, row.event);
    const types = sentOnce(appId).map(({ type }) => type);
    assert.deepEqual(types.sort(), ['event', 'event', 'event', 'event', 'identify', 'user_properties']);
  }

  describe('that replaces functions of the browser', { concurrency: 1 }, () => {
    const broken = `{ throw new Error('of the page') }`;
    const ofEveryObject = (name: string) =>
      `Object.defineProperty(Object.prototype, '${name}', Object.assign(Object.create(null),
        { configurable: true, get() ${broken}, set() ${broken} }))`;

    /** HTML before the snippet. */
    const before: Readonly<Record<string, string>> = {
      'elements named like properties of a document': `
        <img name="cookie"><form name="title"></form><form name="referrer"></form><form name="addEventListener"></form>
        <form name="visibilityState"></form><form name="prerendering"></form><form name="head"></form>`,
      'a form named sluice': '<form name="sluice"></form>',
      'Array.from of MooTools': `<script>Array.from = (item) => item == null ? [] :
        typeof item != 'string' && typeof item.length == 'number' ? [].slice.call(item) : [item]</script>`,
      'no Request': '<script>delete window.Request</script>',
      'random numbers that throw': `<script>Crypto.prototype.getRandomValues = () => ${broken}</script>`,
      'locks that throw': `<script>LockManager.prototype.request = () => ${broken}</script>`,
      'locks that are denied': `<script>LockManager.prototype.request = () => Promise.reject(new Error('denied'))</script>`,
      'a Date.now that stands still': `<script>{ const ms = Date.now(); Date.now = () => ms }</script>`,
      'a Date of a test library': `<script>{ const Real = Date, ms = Real.now(); window.Date = class extends Real {
        constructor(...parts) { super(...(parts.length === 0 ? [ms] : parts)) }
        static now() { return ms }
      } }</script>`,
      'a function that every object has, named get': '<script>Object.prototype.get = () => 5</script>',
    };
    for (const [what, head] of Object.entries(before)) {
      test(`(${what}, before the library) it works`, async (t) => {
        const appId = rig.newAppId(t);
        await assertServed(await open({ appId, head, pageViews: true }), appId);
      });
    }

    /** What the page runs once the library is loaded. */
    const after: Readonly<Record<string, string>> = {
      'Date, fetch and timers replaced': `window.Date = function () ${broken}; Date.now = () => 5;
        window.fetch = () => ${broken}; window.setTimeout = window.clearTimeout = () => ${broken};
        window.AbortController = function () ${broken}; navigator.sendBeacon = () => ${broken}`,
      'a Date that stands still': 'Date.now = () => 1e12',
      'accessors of every object that throw': ['get', 'value', 'writable', 'status', 'identity', 'signal']
        .map(ofEveryObject)
        .join(';'),
      'values of every object': `for (const name of ['get', 'set', 'value', 'writable', 'enumerable', 'keepalive',
        'headers', 'status', 'identity', 'own', 'foo']) Object.prototype[name] = 'of every object'`,
      'random numbers, locks and Array.from that throw': `Crypto.prototype.getRandomValues = () => ${broken};
        LockManager.prototype.request = () => ${broken}; Array.from = () => ${broken}`,
      'a console that throws': `console.warn = () => ${broken}; sluice.track(''); Object.defineProperty(window, 'localStorage', { get() ${broken} })`,
    };
    for (const [what, code] of Object.entries(after)) {
      test(`(${what}, afterwards) it works`, async (t) => {
        const appId = rig.newAppId(t);
        const hostile = await open({ appId, pageViews: true });
        await hostile.run(`${code}; 0`);
        await assertServed(hostile, appId);
      });
    }

    test('(accessors of every object, before the library) it works', async (t) => {
      const appId = rig.newAppId(t);
      const names = ['get', 'value', 'writable', 'set', 'identity', 'status', 'optedOut', 'persisted', 'key'];
      // The page's own script must not read any of them.
      const head = `<script>for (const name of ${JSON.stringify(names)}) {
        let kept; Object.defineProperty(Object.prototype, name, Object.assign(Object.create(null),
          { configurable: true, get() { return kept }, set(value) { kept = value } })) }</script>`;
      await assertServed(await open({ appId, head, pageViews: true }), appId);
    });
  });
});

function drive(page: Page, session: CDPSession): HostilePage {
  async function run<T>(expression: string): Promise<T> {
    const { result, exceptionDetails } = await session.send('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails !== undefined) {
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    }
    return result.value as T;
  }
  return {
    page,
    run,
    async user() {
      const userId = await run<string>('sluice.userId');
      const identity = await run<string | undefined>('sluice.identity');
      return identity === undefined ? { userId } : { userId, identity };
    },
    libraryIn: () =>
      until(() => run<boolean>('window.sluice && sluice.userId !== undefined'), 'the library is there').then(
        () => undefined,
      ),
  };
}
