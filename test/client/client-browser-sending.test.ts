// The client library in real Chromium: whatever happens to pages, tabs, the network and the service, each event is stored
// in ClickHouse exactly once.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { crash, withoutBrowser } from '../harness/browser.js';
import { until } from '../harness/wait.js';
import { clientRig, libraryIn, userOf, warningsOf } from '../support/client-page.js';
import type { SeenRequest, Treat, Treatment } from '../support/collect-front.js';

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

const rig = await clientRig();

describe('sending from a browser', { skip: withoutBrowser(), concurrency: 2 }, () => {
  async function exactlyOnce(appId: string, expected: readonly string[]) {
    const rows = await rig.stored(appId, expected.length);
    assert.deepEqual(rows.map((row) => row.event).sort(), [...expected].sort());
    return rows;
  }

  /** The requests except those without an answer in time, which are sent again. */
  const taken = (appId: string) => rig.front.batches(appId).filter(({ status }) => status !== 503);

  async function batchOf(appId: string, number = 1): Promise<SeenRequest> {
    await until(() => rig.front.batches(appId).length >= number, `${number} batches for ${appId} were sent`);
    return rig.front.batches(appId)[number - 1] as SeenRequest;
  }

  describe('leaving the page and the network', { concurrency: 1 }, () => {
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

    test('a device that is offline sends when it is online again', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId });
      await page.context().setOffline(true);
      const failed = page.waitForEvent('requestfailed', (request) => request.url().includes('/api/collect'));
      await page.evaluate(trackAll(10));
      await failed;
      await page.evaluate(trackAll(10, 10));
      await page.context().setOffline(false);
      await exactlyOnce(appId, numbers(20));
    });
  });

  test('event properties are in one cookie of at most 4,096 bytes; a call that does not fit is refused as a whole', async (t) => {
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
    // Properties may fill the cookie to the last byte; one byte more is refused.
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

  describe('several tabs', { concurrency: 1 }, () => {
    test('three tabs of one visitor are one user in one session, and send nothing twice', async (t) => {
      const appId = rig.newAppId(t);
      rig.front.treat(appId, answerLate);
      const context = await rig.browser.newContext();
      const first = await rig.open({ appId, context });
      await first.evaluate(`sluice.track('First')`);
      await batchOf(appId);
      const others = Array.from({ length: 2 }, () => rig.open({ appId, context }));
      const tabs = [first, ...(await Promise.all(others))];
      const users = await Promise.all(tabs.map(userOf));
      assert.equal(new Set(users.map(({ userId }) => userId)).size, 1);
      await Promise.all(tabs.map((tab, n) => tab.evaluate(trackAll(40, n * 40))));
      const rows = await exactlyOnce(appId, ['First', ...numbers(120)]);
      assert.equal(new Set(rows.map((row) => row.user_id)).size, 1);
      assert.equal(new Set(rows.map((row) => row.session_id)).size, 1);
      const sent = ids(taken(appId));
      assert.equal(sent.length, new Set(sent).size, 'no message was sent twice');
    });

    test('another tab sends the messages that wait in a crashed tab, exactly once', async (t) => {
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
  });
});
