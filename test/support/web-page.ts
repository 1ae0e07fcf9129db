// A page of the simulated browser that has loaded the client library.

import type { EventMessage } from '../../src/libraries/client/core/messages.js';
import { createSluice, type LoadOptions, type Sluice } from '../../src/libraries/client/web/sluice.js';
import {
  createTestBrowser,
  type TestBrowser,
  type TestWindow,
  type WindowOptions,
} from './client-browser.js';

export const baseUrl = 'https://events.example';

/** Opens a page that loads the library for the app 1, without page views unless `load` asks for them. */
export function openPage(
  browser: TestBrowser,
  options: WindowOptions = {},
  load: Partial<LoadOptions> = {},
): TestWindow & { sluice: Sluice } {
  return begin(browser.open(options), load);
}

/** Opens such a page in a new browser. */
export function visit(options: WindowOptions = {}, load: Partial<LoadOptions> = {}) {
  const browser = createTestBrowser();
  return { browser, page: openPage(browser, options, load) };
}

export function begin(win: TestWindow, load: Partial<LoadOptions> = {}): TestWindow & { sluice: Sluice } {
  const sluice = createSluice(win);
  sluice.load('1', { baseUrl, pageViews: false, ...load });
  return Object.assign(win, { sluice });
}

export function events(browser: TestBrowser): EventMessage[] {
  return browser.server.stored.filter((message) => message.type === 'event');
}

export function names(browser: TestBrowser): string[] {
  return browser.server.events();
}

export function lastWaiting({ storage }: TestBrowser): string {
  const keys = [...storage.keys()].filter((key) => key.startsWith('sluice:1:q:'));
  return storage.get(keys.at(-1) as string) as string;
}
