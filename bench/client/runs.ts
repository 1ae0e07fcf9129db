// Measures one build of the client library in a browser. Every page has a new visitor. The server accepts every message, or asks the
// library to wait, so that messages stay in storage.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Browser, Page } from 'playwright-core';
import { BenchError } from '../failure.js';

/** How many messages a full queue has: nearly the maximum that the library keeps. */
export const waitingMessages = 4_800;
export const tracksInARow = 10_000;
export const calls = ['track', 'identify', 'addUserProperties', 'addEventProperties'] as const;
type Call = (typeof calls)[number];

/** Long enough for timers to run and for caches to go cold. */
const pauseMs = 1_200;
const callsInARow = 40;
const callsApart = 3;

/** The mean and the longest of calls in a row, and calls with a pause before each; in µs. */
type CallFigures = { readonly us: number; readonly longestUs: number; readonly apartUs: readonly number[] };
type LargeFigures = { readonly form: string; readonly ms: number; readonly warnings: number };

export type ClientRun = Awaited<ReturnType<typeof runClient>>;

type ClientSite = Awaited<ReturnType<typeof startClientSite>>;

/** Starts a site whose pages can measure microseconds, with the endpoint to which the library sends. */
export async function startClientSite() {
  const script = readFileSync(new URL('client-page.js', import.meta.url));
  const html = '<!doctype html><meta charset="utf-8"><title>Shop</title><script src="/measure.js"></script>';
  const isolated = {
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-embedder-policy': 'require-corp',
  };
  const server = createServer(async (incoming, reply) => {
    const body = await text(incoming);
    if (incoming.url !== '/api/collect') {
      const [type, page] = incoming.url === '/measure.js' ? ['javascript', script] : ['html', html];
      reply.writeHead(200, { 'content-type': `text/${type}`, ...isolated }).end(page);
    } else if (site.accepts) {
      const { messages } = JSON.parse(body) as { messages: { id: string }[] };
      site.accepted += messages.length;
      reply.end(JSON.stringify({ messages: messages.map(({ id }) => ({ id, status: 'stored' })) }));
    } else {
      const err = { code: 'overloaded', message: 'wait' };
      reply.writeHead(503, { 'retry-after': '3600' }).end(JSON.stringify({ err }));
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const site = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    /** Whether the server accepts messages, or asks the library to wait. */
    accepts: true,
    accepted: 0,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
  return site;
}

/** Measures a build of the script once. Throws BenchError if messages are missing or sent against the plan. */
export async function runClient(browser: Browser, site: ClientSite, script: string) {
  const onPage = async <T>(use: (page: Page) => Promise<T>): Promise<T> => {
    const context = await browser.newContext();
    try {
      const page = await context.newPage();
      page.setDefaultTimeout(120_000);
      await page.goto(site.url);
      return await use(page);
    } finally {
      await context.close();
    }
  };
  const start = (page: Page) => ask<number>(page, 'start', script);
  const callsOf = async (page: Page, between: () => Promise<unknown>) => {
    const found: Partial<Record<Call, CallFigures>> = {};
    for (const name of calls) {
      await between();
      await ask(page, 'callsInARow', name, 5);
      await between();
      const inARow = await ask<Omit<CallFigures, 'apartUs'>>(page, 'callsInARow', name, callsInARow);
      found[name] = { ...inARow, apartUs: await ask(page, 'callsApart', name, callsApart, pauseMs) };
    }
    return found as Readonly<Record<Call, CallFigures>>;
  };

  site.accepts = true;
  const empty = await onPage(async (page) => {
    const cold = await start(page);
    return { cold, calls: await callsOf(page, () => page.evaluate('sluice.flush()')) };
  });
  const tracks = await onPage(async (page) => {
    await start(page);
    const acceptedBefore = site.accepted;
    const found = await ask<{ ms: number; longestTaskMs: number }>(page, 'manyTracks', tracksInARow);
    const accepted = site.accepted - acceptedBefore;
    const dropped = (await page.evaluate('sluice.droppedCount')) as number;
    if (accepted + dropped !== tracksInARow)
      throw new BenchError(`${accepted} accepted and ${dropped} dropped`);
    return found;
  });
  site.accepts = false;
  const large = await onPage(async (page) => {
    await start(page);
    const found: LargeFigures[] = [];
    for (const form of await ask<string[]>(page, 'largeForms')) {
      found.push({ form, ...(await ask<Omit<LargeFigures, 'form'>>(page, 'largeProperties', form)) });
    }
    return found;
  });
  const waiting = await onPage(async (page) => {
    await start(page);
    const storedCharacters = await ask<number>(page, 'storedCharacters', 100);
    await ask(page, 'fill', waitingMessages);
    // The server now asks to wait, so from here on the library sends nothing.
    await page.evaluate('sluice.flush()');
    await page.reload();
    const startMs = await start(page);
    const found = await ask<number>(page, 'waiting');
    if (found !== waitingMessages) throw new BenchError(`${found} messages wait, not ${waitingMessages}`);
    const ofCalls = await callsOf(page, async () => {});
    if ((await ask<number>(page, 'waiting')) < waitingMessages) throw new BenchError('messages did not stay');
    return { startMs, storedCharacters, calls: ofCalls };
  });
  return {
    startMs: { cold: empty.cold, waiting: waiting.startMs },
    empty: empty.calls,
    waiting: waiting.calls,
    tracks,
    large,
    storedCharacters: waiting.storedCharacters,
  };
}

/** Calls the page's function with that name, and settles with its result. */
function ask<T>(page: Page, name: string, ...args: readonly unknown[]): Promise<T> {
  const given = args.map((arg) => JSON.stringify(arg)).join(', ');
  return page.evaluate(`measured.${name}(${given})`) as Promise<T>;
}
