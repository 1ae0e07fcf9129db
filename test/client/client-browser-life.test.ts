// The lives of a few visitors in real Chromium: tabs in their own processes share the browser's storage, and the network to the service
// fails. The model is that of `client-life`.

import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { crash, withoutBrowser } from '../harness/browser.js';
import { until } from '../harness/wait.js';
import {
  createLifeModel,
  type LifeOptions,
  type Network,
  type ShownUser,
  type Step,
  stepsOfLife,
  tabsMax,
} from '../support/client-life.js';
import { clientRig } from '../support/client-page.js';
import type { Treatment } from '../support/collect-front.js';
import fc from '../support/fast-check.js';

const options: Omit<LifeOptions, 'hasFaultsOfStorage'> = {
  stepsMin: 20,
  stepsMax: 30,
  waitsMs: [1, 120, 600],
  networks: [
    'works',
    'away',
    'loses answers',
    'answers for none',
    'busy',
    'asks to wait',
    'answers in HTML',
    'hangs',
  ],
};

type Tab = { readonly page: Page; hasCrashed: boolean };

type Shown = { readonly userId?: string; readonly identity?: string };

const rig = await clientRig();

describe('a visitor’s life in a browser', { skip: withoutBrowser(), concurrency: 1 }, () => {
  async function createLife(t: TestContext) {
    const appId = rig.newAppId(t);
    const context = await rig.browser.newContext();
    const tabs: (Tab | undefined)[] = [];
    const faults: string[] = [];
    let network: Network = 'works';
    let changed = () => {};
    let untilChanged = Promise.resolve();
    let hangs = 0;
    let isFull = false;
    let writes = 0;

    // A 200 that the front makes up answers for no message, so it does not count.
    const answered = (): Set<string | undefined> =>
      new Set(
        rig.front
          .batches(appId)
          .filter(({ status, isAnsweredByApi }) => status === 200 && isAnsweredByApi)
          .flatMap(({ messages }) => messages.map(({ event }) => event)),
      );
    const model = createLifeModel({
      now: Date.now,
      idleMs: clientLimits.webSessionIdleMs,
      isStored: (name) => answered().has(name),
      isExact: false,
    });

    const treatments: Readonly<Record<Exclude<Network, 'hangs'>, Treatment>> = {
      works: 'pass',
      away: 'cut',
      'loses answers': 'lose-reply',
      busy: { status: 503, body: '{"err":{"code":"overloaded","message":"busy"}}' },
      'asks to wait': {
        status: 503,
        body: '{"err":{"code":"overloaded","message":"busy"}}',
        headers: { 'retry-after': '1', 'access-control-expose-headers': 'Retry-After' },
      },
      'answers for none': { status: 200, body: '{"messages":[]}' },
      'answers in HTML': { status: 400, body: '<html>Log in</html>' },
    };
    rig.front.treat(appId, async () => {
      if (network !== 'hangs') return treatments[network];
      hangs++;
      await untilChanged;
      hangs--;
      return 'cut';
    });

    function changeNetwork(next: Network): void {
      network = next;
      changed();
      untilChanged = new Promise((resolve) => {
        changed = resolve;
      });
    }

    async function open(number: number): Promise<void> {
      const page = await rig.open({ appId, context, wait: false });
      const tab: Tab = { page, hasCrashed: false };
      page.on('crash', () => {
        tab.hasCrashed = true;
      });
      page.on('pageerror', (error) => faults.push(error.message));
      tabs[number] = tab;
      await page.waitForFunction('window.sluice && sluice.droppedCount !== undefined');
      model.met(await page.evaluate<string | undefined>('sluice.userId'), Date.now());
    }

    async function end(number: number, how: 'leave' | 'crash'): Promise<void> {
      const tab = tabs[number];
      if (tab === undefined) return;
      // A page that crashes while a request hangs holds its messages for 22 s, which another test covers.
      if (how === 'crash' && hangs === 0) await crash(tab.page);
      else await tab.page.goto('about:blank');
      await tab.page.close();
      tabs[number] = undefined;
      model.ended(number);
    }

    /** Settles when every tab has seen what this one has written, since all writes have one order. */
    async function share({ page }: Tab): Promise<void> {
      // The text has the same length each time, so a full storage takes it.
      const text = String(++writes).padStart(8, '0');
      await page.evaluate(`localStorage.setItem('probe', '${text}')`);
      for (const [number, tab] of tabs.entries()) {
        if (tab === undefined || tab.page === page) continue;
        try {
          const seen = `localStorage.getItem('probe') === '${text}'`;
          await tab.page.waitForFunction(seen, undefined, { polling: 10 });
        } catch (error) {
          // The tab shared its process with one that has crashed.
          if (!tab.hasCrashed) throw error;
          tabs[number] = undefined;
          model.ended(number);
        }
      }
    }

    async function call({ page }: Tab, code: string): Promise<{ before: ShownUser; after: ShownUser }> {
      const { before, after } = await page.evaluate<{ before: Shown; after: Shown }>(`(() => {
        const show = () => ({ userId: sluice.userId, identity: sluice.identity });
        const before = show();
        ${code};
        return { before, after: show() };
      })()`);
      const shown = ({ userId, identity }: Shown) => ({ userId, identity });
      return { before: shown(before), after: shown(after) };
    }

    async function act(number: number, tab: Tab, step: Step): Promise<void> {
      if (step.do === 'track') {
        const { before } = await call(tab, `sluice.track('${model.nextName()}')`);
        model.tracked(number, before, isFull);
      } else if (step.do === 'identify') {
        const { before, after } = await call(tab, `sluice.identify('${step.identity}')`);
        model.identified(before.identity, after);
      } else if (step.do === 'reset') {
        const { before, after } = await call(tab, 'sluice.resetIdentity()');
        model.wasReset(before.identity, after);
      } else if (step.do === 'opt out for a moment') {
        for (const each of ['optOut', 'track', 'optIn'] as const)
          await act(number, tab, { do: each, tab: number });
      } else if (step.do === 'optOut' || step.do === 'optIn') {
        await call(tab, `sluice.${step.do}()`);
        model.chose(step.do);
      } else if (step.do === 'storage') {
        isFull = step.state === 'full';
        if (isFull) model.storageIsFull();
        await tab.page.evaluate(isFull ? fill : makeRoom);
      } else if (step.do === 'empty storage') {
        await tab.page.evaluate('localStorage.clear()');
        model.emptied((one) => tabs[one] !== undefined);
      }
      await share(tab);
    }

    async function take(step: Step): Promise<void> {
      if (step.do === 'wait') await new Promise((resolve) => setTimeout(resolve, step.ms));
      else if (step.do === 'network') changeNetwork(step.network);
      else if (step.do === 'leave' || step.do === 'crash') await end(step.tab, step.do);
      else if (step.do === 'open') {
        if (tabs[step.tab] === undefined) await open(step.tab);
      } else {
        const tab = tabs[step.tab];
        if (tab !== undefined) await act(step.tab, tab, step);
      }
    }

    const openTabs = (): Tab[] => tabs.filter((tab) => tab !== undefined);

    /** Makes everything work again; settles when all waiting messages are sent. */
    async function settle(): Promise<void> {
      changeNetwork('works');
      for (let number = 0; number < tabsMax; number++) if (tabs[number] === undefined) await open(number);
      const [first] = openTabs();
      if (first !== undefined) await act(0, first, { do: 'storage', state: 'works', tab: 0 });
      for (const { page } of openTabs()) await page.evaluate(`dispatchEvent(new Event('online'))`);
      await until(async () => {
        const found = answered();
        const missing = model.due().filter((name) => !found.has(name));
        const waiting = await Promise.all(openTabs().map(({ page }) => page.evaluate(countWaiting)));
        if (missing.length === 0 && waiting.every((count) => count === 0)) return true;
        throw new Error(`${missing.join()} are missing, ${waiting.join()} wait`);
      }, 'all that waits is sent');
    }

    async function check(hasSessions: boolean): Promise<void> {
      const sent = rig.front.batches(appId).flatMap(({ messages }) => messages);
      const rows = await rig.stored(appId, answered().size - (answered().has(undefined) ? 1 : 0));
      model.check(
        rows.map(({ event, user_id, identity, session_id }) => {
          // A row under an identity no longer has the user id.
          const users = new Set(sent.filter((one) => one.event === event).map((one) => one.user_id));
          const [userId] = users.size === 1 ? users : [user_id ?? undefined];
          return { event, user_id: userId, identity: identity === '' ? undefined : identity, session_id };
        }),
        hasSessions,
      );
      assert.deepEqual(faults, []);
      await context.close();
    }

    await open(0);
    for (const tab of openTabs()) await share(tab);
    return { take, settle, check };
  }

  /** Tries some lives, one after another; a failure names the seed and the steps. */
  async function live(t: TestContext, lives: number, hasFaultsOfStorage: boolean): Promise<void> {
    const steps = stepsOfLife({ ...options, hasFaultsOfStorage });
    await fc.assert(
      fc.asyncProperty(steps, async (taken) => {
        const startMs = performance.now();
        const life = await createLife(t);
        for (const step of taken) await life.take(step);
        await life.settle();
        await life.check(!hasFaultsOfStorage);
        t.diagnostic(`a life of ${taken.length} steps: ${Math.round(performance.now() - startMs)} ms`);
      }),
      // A failing life is not shrunk, since that would take minutes.
      { numRuns: lives, endOnFailure: true },
    );
  }

  test('random calls in several tabs arrive once, for the right user and session, under every fault of the network', async (t) => {
    await live(t, 3, false);
  });

  test('while storage fills up or is emptied, calls still arrive once for the right user', async (t) => {
    await live(t, 2, true);
  });
});

const fill = `for (let size = 1 << 22; size >= 1; size >>= 1) {
  try { for (let n = 0; ; n++) localStorage.setItem('fill' + size + '-' + n, 'x'.repeat(size)) } catch {}
}`;
const makeRoom = `for (const key of Object.keys(localStorage)) if (key.startsWith('fill')) localStorage.removeItem(key)`;
const countWaiting = `Object.keys(localStorage).filter((key) => /^sluice:.*:q:/.test(key)).length`;
