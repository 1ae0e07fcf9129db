// The client library in real Chromium: whatever happens to pages, tabs, the network and the service, each event is stored
// in ClickHouse exactly once.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { crash, withoutBrowser } from '../harness/browser.js';
import { until } from '../harness/wait.js';
import { type ClientRig, libraryIn, startClientRig, userOf, warningsOf } from '../support/client-page.js';
import { type SeenRequest, startCollectFront, type Treat, type Treatment } from '../support/collect-front.js';

const numbers = (count: number, from = 0) => Array.from({ length: count }, (_, n) => `E${from + n}`);

/** Events `E0`, `E1` … in one go. */
const trackAll = (count: number, from = 0, properties = '{}') =>
  `for (let n = ${from}; n < ${from + count}; n += 1) sluice.track('E' + n, ${properties});`;

const ids = (requests: readonly SeenRequest[]) =>
  requests.flatMap(({ messages }) => messages.map(({ id }) => id));

/**
 * Answers a second late, so that other tabs see in time which messages are under way. If the answer comes before they see it,
 * as on a busy machine, they may send these messages again.
 */
const answerLate: Treat = async (): Promise<Treatment> => {
  await new Promise((resolve) => setTimeout(resolve, clientLimits.settleMs));
  return 'pass';
};

/** Lets a test decide when requests that wait here go on. */
function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}

describe('sending from a browser', { skip: withoutBrowser() }, () => {
  let rig: ClientRig;
  before(async () => {
    rig = await startClientRig();
  });
  after(() => rig?.stop());

  async function exactlyOnce(appId: string, expected: readonly string[]) {
    const rows = await rig.stored(appId, expected.length);
    assert.deepEqual(rows.map((row) => row.event).sort(), [...expected].sort());
    return rows;
  }

  /** What was sent, except requests without an answer in time, which are sent again. */
  const taken = (appId: string) => rig.front.batches(appId).filter(({ status }) => status !== 503);

  async function batchOf(appId: string, number = 1): Promise<SeenRequest> {
    await until(() => rig.front.batches(appId).length >= number, {
      deadlineMs: 60_000,
      what: `${number} batches for ${appId} were sent`,
    });
    return rig.front.batches(appId)[number - 1] as SeenRequest;
  }

  describe('while the service runs', { concurrency: 2 }, () => {
    describe('batches', { concurrency: 1 }, () => {
      test('hold many calls, and are sent by number and by interval', async (t) => {
        const appId = rig.newAppId(t);
        const page = await rig.open({ appId, intervalMs: 60_000 });
        await page.evaluate(trackAll(250));
        await batchOf(appId);
        await page.evaluate('sluice.flush()');
        const rows = await exactlyOnce(appId, numbers(250));
        const batches = taken(appId);
        assert.ok(batches.length <= 4, `${batches.length} requests for 250 calls`);
        assert.equal(new Set(ids(batches)).size, 250);
        assert.equal(ids(batches).length, 250);
        assert.deepEqual(
          batches.flatMap(({ messages }) => messages.map(({ event }) => event)),
          numbers(250),
          'in the order of the calls',
        );
        assert.equal(new Set(rows.map((row) => row.session_id)).size, 1);
      });
    });

    describe('leaving the page', { concurrency: 1 }, () => {
      test('a call right before the tab closes itself arrives', async (t) => {
        const appId = rig.newAppId(t);
        const page = await rig.open({ appId, intervalMs: 60_000 });
        const url = rig.pageUrl({ appId, intervalMs: 60_000 });
        const [popup] = await Promise.all([
          page.waitForEvent('popup'),
          page.evaluate(`void (window.other = window.open(${JSON.stringify(url)}))`),
        ]);
        await libraryIn(popup);
        const closed = popup.waitForEvent('close');
        await popup.evaluate('sluice.track("Bye", { a: 1 }); window.close()').catch(() => undefined);
        await closed;
        await exactlyOnce(appId, ['Bye']);
      });

      test('a call right before a link is followed, or the page reloaded, arrives', async (t) => {
        const appId = rig.newAppId(t);
        const page = await rig.open({ appId, intervalMs: 60_000 });
        const elsewhere = rig.put('<!doctype html><title>Elsewhere</title>');
        for (let n = 0; n < 4; n += 1) {
          await page.evaluate(`sluice.track('E${n}')`);
          if (n % 2 === 0) {
            await page.reload();
            await libraryIn(page);
          } else {
            await page.goto(elsewhere);
            await page.goBack();
            await libraryIn(page);
          }
        }
        await page.goto(elsewhere);
        await exactlyOnce(appId, numbers(4));
      });

      test('events beyond the bytes that a leaving page may send wait for the next page', async (t) => {
        const appId = rig.newAppId(t);
        const page = await rig.open({ appId, intervalMs: 60_000 });
        const url = rig.pageUrl({ appId });
        // The page sends by itself when enough waits; that request gets no answer before the page is gone.
        const { open, opened } = gate();
        rig.front.treat(appId, async () => {
          await opened;
          return 'pass' as const;
        });
        await page.evaluate(trackAll(300, 0, `{ text: 'x'.repeat(900) }`));
        await page.goto(rig.put('<!doctype html><title>Elsewhere</title>'));
        const whileLeaving = rig.front.batches(appId);
        for (const { text } of whileLeaving) assert.ok(Buffer.byteLength(text) < 1_048_576);
        open();
        await page.goto(url);
        await exactlyOnce(appId, numbers(300));
      });

      test('a reload in the middle of a request neither loses nor doubles', async (t) => {
        const appId = rig.newAppId(t);
        const page = await rig.open({ appId });
        const { open, opened } = gate();
        rig.front.treat(appId, async () => {
          await opened;
          return 'pass' as const;
        });
        await page.evaluate(trackAll(20));
        await batchOf(appId);
        await page.reload();
        await libraryIn(page);
        await page.evaluate(trackAll(5, 20));
        open();
        await exactlyOnce(appId, numbers(25));
      });

      test('a page that was closed while the service was away leaves its events to a later one', async (t) => {
        const appId = rig.newAppId(t);
        const page = await rig.open({ appId });
        let away = true;
        rig.front.treat(appId, () => (away ? 'cut' : 'pass'));
        await page.evaluate(trackAll(10));
        await batchOf(appId);
        const { userId } = await userOf(page);
        await page.close({ runBeforeUnload: true });
        away = false;
        const later = await rig.open({ appId, context: page.context() });
        await later.evaluate(trackAll(1, 10));
        const rows = await exactlyOnce(appId, numbers(11));
        assert.deepEqual([...new Set(rows.map((row) => row.user_id))], [userId]);
      });
    });

    describe('several tabs', { concurrency: 1 }, () => {
      for (const count of [2, 5]) {
        test(`${count} tabs of one visitor are one user in one session, and send nothing twice`, async (t) => {
          const appId = rig.newAppId(t);
          rig.front.treat(appId, answerLate);
          const context = await rig.browser.newContext();
          const first = await rig.open({ appId, context });
          await first.evaluate(`sluice.track('First')`);
          await batchOf(appId);
          const others = Array.from({ length: count - 1 }, () => rig.open({ appId, context }));
          const tabs = [first, ...(await Promise.all(others))];
          const users = await Promise.all(tabs.map(userOf));
          assert.equal(new Set(users.map(({ userId }) => userId)).size, 1);
          await Promise.all(tabs.map((tab, n) => tab.evaluate(trackAll(40, n * 40))));
          const rows = await exactlyOnce(appId, ['First', ...numbers(40 * count)]);
          assert.equal(new Set(rows.map((row) => row.user_id)).size, 1);
          assert.equal(new Set(rows.map((row) => row.session_id)).size, 1);
          const sent = ids(taken(appId));
          assert.equal(sent.length, new Set(sent).size, 'no message was sent twice');
        });
      }

      test('tabs that open at once on a first visit are one user in one session', async (t) => {
        const appId = rig.newAppId(t);
        const context = await rig.browser.newContext();
        const head = `<script>${watchStorage}; var probing = probe();</script>`;
        const tabs = await Promise.all([1, 2].map(() => rig.open({ appId, context, head, pageViews: true })));
        const rows = await rig.stored(appId, 2);
        assert.equal(rows.length, 2);
        for (const tab of tabs) await tab.evaluate('clearInterval(probing)');
        const sawEachOther = async () => (await latestSeenMs(tabs)) < clientLimits.settleMs / 3;
        if (await sawEachOther()) {
          assert.deepEqual(
            [...new Set(rows.map((row) => row.user_id))],
            [(await userOf(tabs[0] as Page)).userId],
          );
          assert.equal(new Set(rows.map((row) => row.session_id)).size, 1);
        }

        // When the storage is emptied, a tab sends again whatever it has no answer for.
        for (const tab of tabs) await tab.evaluate('sluice.flush()');
        rig.front.treat(appId, answerLate);
        // Many more first visits, all in the same millisecond, which loading pages seldom hit.
        const users = new Set<string>();
        const judged: number[] = [];
        const judgedMin = 5;
        let rounds = 0;
        for (; rounds < 15 || (judged.length < judgedMin && rounds < 60); rounds += 1) {
          const round = rounds;
          await tabs[0]?.evaluate('localStorage.clear()');
          await Promise.all(tabs.map((tab) => tab.waitForFunction('localStorage.length === 0')));
          const at = Date.now() + 150;
          const calls = tabs.map((tab, n) =>
            tab.evaluate(`new Promise((resolve) => setTimeout(() => {
              while (Date.now() < ${at});
              sluice.track('Round ${round}', { tab: ${n} });
              probing = probe();
              resolve(sluice.flush());
            }))`),
          );
          await Promise.all(calls);
          for (const tab of tabs) await tab.evaluate('clearInterval(probing)');
          users.add((await userOf(tabs[0] as Page)).userId);
          if (await sawEachOther()) judged.push(round);
        }
        const all = await rig.stored(appId, 2 + 2 * rounds);
        assert.equal(all.length, 2 + 2 * rounds);
        t.diagnostic(`the tabs saw each other in time in ${judged.length} of ${rounds} rounds`);
        assert.ok(judged.length >= judgedMin);
        for (let round = 0; round < rounds; round += 1) {
          const own = all.filter(({ event }) => event === `Round ${round}`);
          assert.equal(own.length, 2);
          if (!judged.includes(round)) continue;
          assert.equal(own[0]?.user_id, own[1]?.user_id, `one user in round ${round}`);
          assert.equal(own[0]?.session_id, own[1]?.session_id, `one session in round ${round}`);
        }
        assert.equal(users.size, rounds);
        const inJudged = new Set(judged.map((round) => `Round ${round}`));
        const sent = taken(appId)
          .flatMap(({ messages }) => messages)
          .filter(({ event }) => inJudged.has(event ?? ''))
          .map(({ id }) => id);
        assert.equal(sent.length, 2 * judged.length, 'no message was sent twice');
      });

      test('an identity, a reset and event properties count in the other tabs too', async (t) => {
        const appId = rig.newAppId(t);
        const context = await rig.browser.newContext();
        const [one, two] = [await rig.open({ appId, context }), await rig.open({ appId, context })];
        // In this order, a tab that sees the identity also has the properties, which are in a cookie.
        await one.evaluate(
          'sluice.addEventProperties({ theme: "dark" }); sluice.identify("ada@example.com")',
        );
        await two.waitForFunction('sluice.identity === "ada@example.com"');
        await two.evaluate('sluice.track("Ada")');
        const ada = await userOf(two);
        assert.deepEqual(ada, await userOf(one));
        await two.evaluate('sluice.resetIdentity()');
        await one.waitForFunction('sluice.identity === undefined');
        const next = await userOf(one);
        assert.notEqual(next.userId, ada.userId);
        assert.deepEqual(await userOf(two), next);
        await one.evaluate('sluice.track("Next")');
        const rows = await exactlyOnce(appId, ['Ada', 'Next']);
        for (const row of rows) assert.equal(row.properties.theme, 'dark');
      });

      test('what waits in a tab that crashes is sent by another one, exactly once', async (t) => {
        const appId = rig.newAppId(t);
        const context = await rig.browser.newContext();
        let away = true;
        rig.front.treat(appId, () => (away ? 'cut' : 'pass'));
        const [doomed, heir] = [await rig.open({ appId, context }), await rig.open({ appId, context })];
        await doomed.evaluate(trackAll(15));
        await batchOf(appId);
        await crash(doomed);
        away = false;
        await heir.evaluate(trackAll(5, 15));
        await exactlyOnce(appId, numbers(20));
      });

      test('a tab that crashes while its batch is under way loses and doubles nothing', async (t) => {
        const appId = rig.newAppId(t);
        const context = await rig.browser.newContext();
        const [doomed, heir] = [await rig.open({ appId, context }), await rig.open({ appId, context })];
        const { open, opened } = gate();
        let requests = 0;
        rig.front.treat(appId, async () => {
          requests += 1;
          if (requests > 1) return 'pass';
          await opened;
          return 'lose-reply';
        });
        await doomed.evaluate(trackAll(15));
        await batchOf(appId);
        await crash(doomed);
        open();
        await heir.evaluate(trackAll(5, 15));
        await until(() => new Set(ids(rig.front.batches(appId).slice(1))).size === 20, {
          // Longer than the batch of a closed page is held.
          deadlineMs: 90_000,
          what: 'the other tab sends what was under way again',
        });
        await exactlyOnce(appId, numbers(20));
      });
    });

    describe('faults of the network and the service', { concurrency: 1 }, () => {
      test('events recorded while no server listens arrive once a server does', async (t) => {
        const appId = rig.newAppId(t);
        // The front itself stays up for the other tests.
        const own = await startCollectFront(rig.sluice.baseUrl);
        try {
          own.down();
          const script = `${rig.front.url}/sdk.js`;
          const page = await rig.open({ appId, baseUrl: own.url, script });
          const refused = page.waitForEvent('requestfailed', (request) =>
            request.url().includes('/api/collect'),
          );
          await page.evaluate(trackAll(30));
          assert.match(String((await refused).failure()?.errorText), /CONNECTION_REFUSED/);
          await page.reload();
          await libraryIn(page);
          await page.evaluate(trackAll(5, 30));
          await own.up();
          await exactlyOnce(appId, numbers(35));
        } finally {
          own.close();
        }
      });

      test('after a lost answer the batch is repeated, and the repeat stores nothing', async (t) => {
        const appId = rig.newAppId(t);
        let requests = 0;
        rig.front.treat(appId, () => (requests++ < 2 ? 'lose-reply' : 'pass'));
        const page = await rig.open({ appId });
        await page.evaluate(trackAll(10));
        const repeat = await batchOf(appId, 3);
        assert.deepEqual(ids([repeat]).slice(0, 10), ids([await batchOf(appId)]));
        await exactlyOnce(appId, numbers(10));
        assert.equal(await page.evaluate('sluice.droppedCount'), 0);
      });

      for (const [what, treatment] of [
        ['500', { status: 500, body: 'oops' }],
        [
          '503 with Retry-After',
          { status: 503, headers: { 'retry-after': '1' }, body: '{"err":{"code":"unknown"}}' },
        ],
        [
          'a 502 page of a proxy',
          { status: 502, headers: { 'content-type': 'text/html' }, body: '<h1>502</h1>' },
        ],
        ['200 with something else', { status: 200, body: '<html>Sign in to the hotel</html>' }],
      ] as [string, Treatment][]) {
        test(`what was answered ${what} is sent again`, async (t) => {
          const appId = rig.newAppId(t);
          let requests = 0;
          rig.front.treat(appId, () => (requests++ === 0 ? treatment : 'pass'));
          const page = await rig.open({ appId });
          await page.evaluate(trackAll(3));
          await exactlyOnce(appId, numbers(3));
          assert.equal(await page.evaluate('sluice.droppedCount'), 0);
        });
      }

      test('after 429 with Retry-After nothing is sent until that time, whatever is called meanwhile', async (t) => {
        const appId = rig.newAppId(t);
        let requests = 0;
        const headers = { 'retry-after': '3', 'access-control-expose-headers': 'Retry-After' };
        rig.front.treat(appId, () => (requests++ === 0 ? { status: 429, headers, body: '{}' } : 'pass'));
        const page = await rig.open({ appId });
        await page.evaluate(trackAll(2));
        const refused = await batchOf(appId);
        await page.evaluate(`${trackAll(250, 2)}; sluice.flush()`);
        await page.reload();
        await libraryIn(page);
        await page.evaluate(`${trackAll(1, 252)}; sluice.flush()`);
        await exactlyOnce(appId, numbers(253));
        const next = await batchOf(appId, 2);
        assert.ok(next.atMs - refused.atMs >= 2_950, `${next.atMs - refused.atMs} ms later`);
      });

      test('a batch is not repeated after a 400: the faulty message is dropped with a warning, the others are sent', async (t) => {
        const appId = rig.newAppId(t);
        const body = '{"err":{"code":"invalid","message":"no"}}';
        rig.front.treat(appId, ({ text }) => (text.includes('"E2"') ? { status: 400, body } : 'pass'));
        const page = await rig.open({ appId });
        const warnings = warningsOf(page);
        await page.evaluate(trackAll(5));
        await until(async () => (await page.evaluate('sluice.droppedCount')) === 1, {
          deadlineMs: 60_000,
          what: 'the message is given up',
        });
        assert.ok(warnings.length > 0);
        await page.evaluate(trackAll(3, 5));
        await exactlyOnce(
          appId,
          numbers(8).filter((name) => name !== 'E2'),
        );
        const batches = taken(appId).map((batch) => ids([batch]).join());
        assert.equal(new Set(batches).size, batches.length);
        const alone = rig.front
          .batches(appId)
          .filter((batch) => batch.status === 400 && batch.messages.length === 1);
        assert.equal(alone.length, 1, 'the faulty message alone was not sent again either');
      });

      test('a proxy’s 413 halves the batch, and a message that is too large alone stays behind', async (t) => {
        const appId = rig.newAppId(t);
        rig.front.treat(appId, ({ text }) => (text.length > 2_000 ? { status: 413, body: '' } : 'pass'));
        const page = await rig.open({ appId });
        await page.evaluate(`sluice.track('Large', { text: 'x'.repeat(1000), more: 'y'.repeat(1000) })`);
        await page.evaluate(trackAll(40));
        // Each flush ends the wait after a failure.
        await page.evaluate(`setInterval(() => dispatchEvent(new Event('online')), 300)`);
        await exactlyOnce(appId, numbers(40));
        rig.front.treat(appId, () => 'pass');
        await page.reload();
        await exactlyOnce(appId, [...numbers(40), 'Large']);
      });

      test('a device that is offline sends when it is online again', async (t) => {
        const appId = rig.newAppId(t);
        const page = await rig.open({ appId });
        await page.context().setOffline(true);
        const failed = page.waitForEvent('requestfailed', (request) =>
          request.url().includes('/api/collect'),
        );
        await page.evaluate(trackAll(10));
        await failed;
        await page.evaluate(trackAll(10, 10));
        await page.context().setOffline(false);
        await exactlyOnce(appId, numbers(20));
      });

      test('waiting addUserProperties calls go as one message, so that no limit is met', async (t) => {
        const appId = rig.newAppId(t);
        const page = await rig.open({ appId, intervalMs: 500 });
        await page.evaluate(`sluice.identify('many@x.example');
        for (let n = 0; n < 100; n += 1) sluice.addUserProperties({ ['p' + (n % 10)]: n });
        sluice.track('E0')`);
        await exactlyOnce(appId, ['E0']);
        const sent = taken(appId).flatMap(({ messages }) => messages);
        assert.equal(sent.filter(({ type }) => type === 'user_properties').length, 1);
        const user = await until(
          async () =>
            (
              await rig.sluice.rows<{ properties: Record<string, string> }>(
                `SELECT properties FROM users WHERE app_id = '${appId}' AND identity = 'many@x.example'`,
              )
            ).find(({ properties }) => properties.p9),
          { deadlineMs: 60_000, what: 'the properties are stored' },
        );
        for (let n = 0; n < 10; n += 1) assert.equal(user.properties[`p${n}`], String(90 + n));
      });

      test('a full queue drops the oldest messages, counts them, and sends the rest', async (t) => {
        const appId = rig.newAppId(t);
        let away = true;
        rig.front.treat(appId, () => (away ? 'cut' : 'pass'));
        const page = await rig.open({ appId });
        await page.evaluate(trackAll(5_100));
        const dropped = Number(await page.evaluate('sluice.droppedCount'));
        assert.ok(dropped >= 100 && dropped <= 150, String(dropped));
        away = false;
        await exactlyOnce(appId, numbers(5_100 - dropped, dropped));
      });
    });
  });

  // The other tests need the service.
  test('a service that is killed and started again loses and doubles nothing', async (t) => {
    const appId = rig.newAppId(t);
    const page = await rig.open({ appId });
    await page.evaluate(`window.n = 0; window.timer = setInterval(() => {
        sluice.track('E' + window.n++);
        if (window.n === 100) clearInterval(window.timer);
      }, 50)`);
    await batchOf(appId, 2);
    const api = rig.sluice.api[0];
    await api?.kill9();
    await page.waitForEvent('requestfailed', (request) => request.url().includes('/api/collect'));
    await api?.restart();
    await exactlyOnce(appId, numbers(100));
  });
});

/** Lets a tab note how late it sees what another tab wrote, and gives it something to write itself. */
const watchStorage = `
  window.lateMs = 0;
  addEventListener('storage', ({ key, newValue }) => {
    if (key === 'probe' && newValue !== null) lateMs = Math.max(lateMs, Date.now() - Number(newValue));
  });
  window.probe = () => {
    const write = () => localStorage.setItem('probe', Date.now());
    write();
    return setInterval(write, 50);
  }`;

/**
 * How late, since the last call, a tab saw what another one wrote. Tabs that open at once are certainly one user only if
 * they saw each other's writes in time, which a process that is paused for a while does not.
 */
async function latestSeenMs(tabs: readonly Page[]): Promise<number> {
  const names = tabs.map((_, n) => `seen ${n}`);
  await Promise.all(tabs.map((tab, n) => tab.evaluate(`localStorage.setItem('${names[n]}', '')`)));
  // All writes have one order, so a tab that sees these has seen the others.
  const all = names.map((name) => `localStorage.getItem('${name}') !== null`).join(' && ');
  await Promise.all(tabs.map((tab) => tab.waitForFunction(all)));
  const late = await Promise.all(tabs.map((tab) => tab.evaluate<number>('[lateMs, (lateMs = 0)][0]')));
  return Math.max(...late);
}
