// What the package exports as `sluice/client`: the surface of web pages. Importing it touches nothing, so that
// pages may be rendered on a server.

import type { Window } from './web/browser.js';
import { createSluice, type Sluice } from './web/sluice.js';

export type { LoadOptions, Sluice, SluiceProperties } from './web/sluice.js';
export { type SnippetOptions, snippet, snippetVersion } from './web/snippet.js';

/** The library of this page. */
export const sluice: Sluice = createSluice(globalThis as unknown as Window);
