// Loads uWebSockets.js with a bound on headers. It reads the bound once, when it is loaded, from a variable of the process, and
// by itself takes 4 KiB: a page with our cookies and those of its site sends more. Its own refusal has no headers for pages of
// other sites, which then see no answer at all, so it takes some more than we do.

import { createRequire } from 'node:module';
import { receiving } from '../../contract/limits.js';

type Front = typeof import('uWebSockets.js');

let loaded: Front | undefined;

/** What the headers of a request may have, all together. */
export const headerBound: { bytesMax: number } = { bytesMax: receiving.headerBytesMax };

/** uWebSockets.js. `headerBytesMax` counts for the first call of a process only. */
export function front(headerBytesMax: number = receiving.headerBytesMax): Front {
  if (loaded === undefined) {
    headerBound.bytesMax = headerBytesMax;
    process.env.UWS_HTTP_MAX_HEADERS_SIZE = String(headerBytesMax + receiving.headerBytesAnswered);
    loaded = createRequire(import.meta.url)('uWebSockets.js') as Front;
  }
  return loaded;
}
