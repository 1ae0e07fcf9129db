// What the package `sluice-client` exports: the surface for web pages. Importing it touches nothing, so pages can be rendered on a server.

import type { Window as PageWindow } from './web/browser.js';
import { createSluice, type Sluice } from './web/sluice.js';

export type { BeforeSend, Draft } from './core/before-send.js';
export type { PageViewOptions } from './web/page-views.js';
export type { LoadOptions, Sluice, SluiceProperties } from './web/sluice.js';
export { type SnippetOptions, snippet, snippetVersion } from './web/snippet.js';

/** The library of this page. */
export const sluice: Sluice = createSluice(globalThis as unknown as PageWindow);

declare global {
  /** Where the script and its snippet put the library. */
  interface Window {
    sluice: Sluice;
  }
}
