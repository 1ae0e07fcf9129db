// Pages with the client library in a real browser, with a whole service behind them. A test sees which requests a page sent, and what
// ClickHouse stored of them.

import { createServer } from 'node:http';
import { after, type TestContext } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { type SnippetOptions, snippet } from '../../src/libraries/client/web/snippet.js';
import { createEnvironments } from '../harness/accounts.js';
import { launchBrowser, withoutBrowser } from '../harness/browser.js';
import { collect, event, newId, request } from '../harness/collect.js';
import { listen } from '../harness/listen.js';
import type { Deployment } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { startCollectFront } from './collect-front.js';
import { sharedSluice } from './sluice.js';

export type StoredRow = {
  readonly event: string;
  readonly user_id: string | null;
  readonly identity: string;
  readonly session_id: string;
  readonly time_ms: number;
  readonly properties: Readonly<Record<string, string>>;
};

export type PageOptions = Partial<SnippetOptions> & {
  readonly appId: string;
  /** The browser profile of the user who opens it; a new one by default. */
  readonly context?: BrowserContext;
  /** HTML before the snippet. */
  readonly head?: string;
  /** HTML instead of `head` and snippet. */
  readonly html?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Whether to wait until the library is loaded; true by default. */
  readonly wait?: boolean;
};

const environmentsMax = 50;

/** The rig of a test file, which ends with it. Without a browser the file's tests are skipped, and there is none. */
export async function clientRig() {
  if (withoutBrowser() !== false) return undefined as never;
  const rig = await startClientRig(await sharedSluice());
  after(() => rig.stop());
  return rig;
}

/** Starts front, site and browser. */
async function startClientRig(sluice: Deployment) {
  const closing: (() => unknown)[] = [];
  /** Ends everything, including the pages that tests opened. */
  const stop = async () => {
    for (const close of closing.reverse()) await close();
  };
  try {
    const appIds = await createEnvironments(
      sluice,
      Array.from({ length: environmentsMax }, () => []),
    );
    const front = await startCollectFront(sluice.baseUrl);
    closing.push(() => front.close());
    const site = await startSite();
    closing.push(() => site.close());
    const browser = await launchBrowser();
    closing.push(() => browser.close());

    const contexts = new Map<string, Set<BrowserContext>>();
    /** Puts a page with the snippet on the site; returns its address. */
    const pageUrl = (options: PageOptions): string => {
      const { context, head, html, headers, wait, ...load } = options;
      const script = snippet({ baseUrl: front.url, pageViews: false, intervalMs: 100, ...load });
      const body = html ?? `${head ?? ''}<script>${script}</script>`;
      return site.put(`<!doctype html><html><head><meta charset="utf-8"><title>Shop</title>${body}`, headers);
    };

    return {
      sluice,
      front,
      browser,
      siteUrl: site.url,
      put: site.put,
      pageUrl,
      /** Returns an environment for this test alone; its pages are closed after the test. */
      newAppId(t: TestContext): string {
        const appId = appIds.pop();
        if (appId === undefined) throw new Error('more tests than environments');
        t.after(async () => {
          for (const context of contexts.get(appId) ?? []) await context.close();
        });
        return appId;
      },
      /** Opens such a page, by default without page views. */
      async open(options: PageOptions): Promise<Page> {
        const context = options.context ?? (await browser.newContext());
        contexts.set(options.appId, (contexts.get(options.appId) ?? new Set()).add(context));
        // Also applies to pages that a page opens.
        context.setDefaultTimeout(60_000);
        const page = await context.newPage();
        await page.goto(pageUrl(options));
        if (options.wait !== false) await libraryIn(page);
        return page;
      },
      /** Settles with all events of an environment by time, once there are `count` and no more are under way. */
      stored: (appId: string, count: number) => stored(sluice, appId, count),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Settles when the script is loaded and has begun to record. */
export async function libraryIn(page: Page): Promise<void> {
  await page.waitForFunction('window.sluice && sluice.userId !== undefined');
}

export function warningsOf(page: Page): string[] {
  const warnings: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'warning') warnings.push(message.text());
  });
  return warnings;
}

export function userOf(page: Page): Promise<{ userId: string; identity?: string }> {
  return page.evaluate('({ userId: sluice.userId, identity: sluice.identity })');
}

/** Waits for the events, then sends and waits for a mark: a shard keeps the order, so all that was accepted earlier is then stored. */
async function stored(sluice: Deployment, appId: string, count: number): Promise<StoredRow[]> {
  const ofTest = `FROM events WHERE app_id = '${appId}' AND NOT startsWith(event, 'mark ')`;
  const all = () =>
    sluice.rows<StoredRow>(`SELECT event, if(user_id IS NULL, NULL, toString(user_id)) AS user_id, identity,
      session_id, toInt64(toUnixTimestamp64Milli(time)) AS time_ms, properties
      ${ofTest} ORDER BY time, event`);
  await until(
    async () => {
      const [found] = await sluice.rows<{ rows: string }>(`SELECT toString(count()) AS rows ${ofTest}`);
      return Number(found?.rows) >= count;
    },
    // Longer than the library holds the batch of a closed page, and than the interval of an open one.
    { deadlineMs: 90_000, what: `${count} events are stored` },
  ).catch(async (error: Error) => {
    const names = (await all()).map((row) => row.event);
    throw new Error(`${error.message}, but ${names.length}: ${JSON.stringify(names.slice(0, 40))}`);
  });
  const mark = `mark ${newId()}`;
  const message = event({ event: mark });
  // On a busy machine the disk may stall for longer than a request waits. A repeat changes nothing.
  const taken = async () => (await collect(sluice.baseUrl, request(appId, [message]))).status === 200;
  await until(taken, { everyMs: 500, what: 'the mark is taken' });
  await until(
    async () => (await sluice.rows(`SELECT 1 FROM events WHERE event = '${mark}'`)).length === 1,
    'the mark is stored',
  );
  return (await all()).map((row) => ({ ...row, time_ms: Number(row.time_ms) }));
}

/** A web server with an origin of its own. */
async function startSite() {
  const documents = new Map<string, { html: string; headers: Readonly<Record<string, string>> }>();
  const server = createServer((incoming, reply) => {
    const found = documents.get(new URL(incoming.url ?? '', 'http://site').pathname);
    if (found === undefined) reply.writeHead(404).end();
    else {
      const type = { 'content-type': 'text/html; charset=utf-8' };
      reply.writeHead(200, { ...type, ...found.headers }).end(found.html);
    }
  });
  const { url, stop } = await listen(server);
  return {
    url,
    put(html: string, headers: Readonly<Record<string, string>> = {}, path = `/${newId()}`): string {
      documents.set(path, { html, headers });
      return url + path;
    },
    close: stop,
  };
}
