// Loads uWebSockets.js with our bound on headers. It reads the bound once, when it is loaded, from a variable of the process, and
// by itself takes 4 KiB: a page with our cookies and those of its site sends more.

import { createRequire } from 'node:module';
import { receiving } from '../../contract/limits.js';

type Front = typeof import('uWebSockets.js');

let loaded: Front | undefined;

/** uWebSockets.js. `headerBytesMax` counts for the first call of a process only. */
export function front(headerBytesMax: number = receiving.headerBytesMax): Front {
  if (loaded === undefined) {
    process.env.UWS_HTTP_MAX_HEADERS_SIZE = String(headerBytesMax);
    loaded = createRequire(import.meta.url)('uWebSockets.js') as Front;
  }
  return loaded;
}
