// Thousands of visitors' lives, in scripted windows whose clock the test controls.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TransportAnswer } from '../../src/libraries/client/core/adapters.js';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import type { EventMessage } from '../../src/libraries/client/core/messages.js';
import { createSluice, type Sluice } from '../../src/libraries/client/web/sluice.js';
import { createTestBrowser, type TestWindow, type WindowOptions } from '../support/client-browser.js';
import {
  createLifeModel,
  type LifeOptions,
  type Network,
  type ShownUser,
  type Step,
  stepsOfLife,
  tabsMax,
} from '../support/client-life.js';
import { failure, type ReceivedRequest } from '../support/client-world.js';
import fc, { runs } from '../support/fast-check.js';

const baseUrl = 'https://events.example';
const idleMs = clientLimits.webSessionIdleMs;
const options: Omit<LifeOptions, 'hasFaultsOfStorage' | 'stepsMin'> = {
  stepsMax: 60,
  // No sum of these waits comes within a second of the idle time, since a further use within one second is not recorded.
  waitsMs: [1, 400, 3_000, 20_000, idleMs * 0.6, idleMs + 5_000],
  networks: ['works', 'away', 'loses answers', 'answers for none', 'busy', 'asks to wait', 'answers in HTML'],
};

function createLife() {
  const browser = createTestBrowser();
  /** The options of all windows, so that a change applies to the whole browser. */
  const options: { -readonly [Name in keyof WindowOptions]: WindowOptions[Name] } = {};
  const tabs: ({ readonly win: TestWindow; readonly sluice: Sluice } | undefined)[] = [];
  const model = createLifeModel({
    now: browser.clock.now,
    idleMs,
    isStored: (name) => browser.server.events().includes(name),
  });
  /** The user that all tabs have, as long as storage works. */
  let user: ShownUser | undefined;
  const seen = new Set<string | undefined>();
  let tabEnded = false;
  /** How often the server has answered for each message. */
  const answers = new Map<string, number>();
  let network: Network = 'works';

  browser.server.answerWith = ({ request }: ReceivedRequest): TransportAnswer | undefined => {
    if (network === 'away') return failure(0);
    if (network === 'busy') return failure(503, 'overloaded');
    if (network === 'asks to wait') return failure(503, 'overloaded', '7');
    if (network === 'answers in HTML') return { status: 400, body: '<html>Log in</html>' };
    if (network === 'answers for none') return { status: 200, body: '{"messages":[]}' };
    if (network === 'works') {
      for (const { id } of request.messages) answers.set(id, (answers.get(id) ?? 0) + 1);
      return undefined;
    }
    browser.server.accept(request);
    return failure(0);
  };

  function open(number: number): void {
    const win = browser.open(options);
    const sluice = createSluice(win);
    sluice.load('1', { baseUrl, pageViews: false });
    tabs[number] = { win, sluice };
  }

  function end(number: number, how: 'leave' | 'crash'): void {
    const page = tabs[number];
    if (page === undefined) return;
    if (how === 'leave') page.win.fire('pagehide');
    page.win.end();
    tabs[number] = undefined;
    tabEnded = true;
    model.ended(number);
  }

  /** Asserts that this tab shows the same user as all others. */
  function look({ userId, identity }: ShownUser): ShownUser {
    seen.add(userId);
    const shown = { userId, identity };
    if (userId === undefined || model.hasStorageFailed()) return shown;
    user ??= shown;
    assert.deepEqual(shown, user);
    return shown;
  }

  /** Asserts that a new user has begun, who was never there before. */
  function become(sluice: Sluice, identity: string | undefined): void {
    assert.equal(sluice.identity, identity);
    assert.ok(!seen.has(sluice.userId), 'a new user was never there before');
    user = undefined;
    look(sluice);
  }

  function call(number: number, sluice: Sluice, step: Step): void {
    const before = look(sluice);
    if (step.do === 'track') {
      sluice.track(model.nextName());
      model.tracked(number, before, options.localStorage === 'full');
    } else if (step.do === 'identify') {
      sluice.identify(step.identity);
      model.identified(before.identity, sluice);
      if (before.identity === undefined) user = undefined;
      else if (before.identity !== step.identity)
        become(sluice, model.isOptedOut() ? undefined : step.identity);
    } else if (step.do === 'reset') {
      sluice.resetIdentity();
      model.wasReset(before.identity, sluice);
      if (before.identity !== undefined) become(sluice, undefined);
    } else if (step.do === 'opt out for a moment') {
      for (const each of ['optOut', 'track', 'optIn'] as const)
        call(number, sluice, { do: each, tab: number });
    } else if (step.do === 'optOut' || step.do === 'optIn') {
      sluice[step.do]();
      model.chose(step.do);
      // The user is gone: after opting in there is another one.
      if (step.do === 'optOut') {
        user = undefined;
        assert.equal(sluice.userId, undefined);
      }
    } else if (step.do === 'empty storage') {
      tabs[number]?.win.clearStorage();
      model.emptied((tab) => tabs[tab] !== undefined);
    }
  }

  async function take(step: Step): Promise<void> {
    if (step.do === 'wait') await browser.clock.advance(step.ms);
    else if (step.do === 'network') network = step.network;
    else if (step.do === 'storage') {
      if (step.state === 'works') delete options.localStorage;
      else {
        options.localStorage = 'full';
        model.storageIsFull();
      }
    } else if (step.do === 'open') {
      if (tabs[step.tab] === undefined) open(step.tab);
    } else if (step.do === 'leave' || step.do === 'crash') end(step.tab, step.do);
    else {
      const page = tabs[step.tab];
      if (page !== undefined) call(step.tab, page.sluice, step);
    }
  }

  /** Makes everything work again, and keeps pages open for long enough. */
  async function settle(): Promise<void> {
    network = 'works';
    delete options.localStorage;
    for (let number = 0; number < tabsMax; number++) if (tabs[number] === undefined) open(number);
    for (const page of tabs) page?.win.fire('online');
    await browser.clock.advance(idleMs);
  }

  function check(hasSessions: boolean): void {
    const stored = browser.server.stored.filter(
      (message): message is EventMessage => message.type === 'event',
    );
    model.check(
      stored.map(({ event, user_id, identity, session_id }) => ({ event, user_id, identity, session_id })),
      hasSessions,
    );
    // A message may be sent again if no page was left to see its answer.
    if (tabEnded || model.hasStorageFailed()) return;
    assert.ok(Math.max(0, ...answers.values()) <= 1, 'nothing is sent again that was answered');
  }

  open(0);
  // The visitor has been here before, so the model knows the user.
  model.met(tabs[0]?.sluice.userId, undefined);
  return { take, settle, check };
}

test('all calls of a visitor in several tabs arrive once, for the right user and session, under every fault of the network', async () => {
  await fc.assert(
    fc.asyncProperty(stepsOfLife({ ...options, stepsMin: 30, hasFaultsOfStorage: false }), async (steps) => {
      const life = createLife();
      for (const step of steps) await life.take(step);
      await life.settle();
      life.check(true);
    }),
    { numRuns: runs(300) },
  );
});

test('while storage fills up or is emptied, calls still arrive once for the right user; only calls in a page’s memory can be lost with the page', async () => {
  await fc.assert(
    fc.asyncProperty(stepsOfLife({ ...options, stepsMin: 30, hasFaultsOfStorage: true }), async (steps) => {
      const life = createLife();
      for (const step of steps) await life.take(step);
      await life.settle();
      life.check(false);
    }),
    { numRuns: runs(300) },
  );
});
