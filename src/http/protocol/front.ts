// Loads uWebSockets.js with a bound on headers, which it reads once, when it is loaded, from an environment variable. Its default is 4 KiB,
// but a page with our cookies and those of its site sends more. It takes somewhat more than our own bound, since its refusal lacks CORS
// headers: pages of other sites would see no answer at all.

import { createRequire } from 'node:module';
import { receiving } from '../../contract/limits.js';

type Front = typeof import('uWebSockets.js');

let loaded: Front | undefined;

/** The bound on all headers of a request together. */
export const headerBound: { bytesMax: number } = { bytesMax: receiving.headerBytesMax };

/** uWebSockets.js. Only the first call of a process decides `headerBytesMax`. */
export function front(headerBytesMax: number = receiving.headerBytesMax): Front {
  if (loaded === undefined) {
    headerBound.bytesMax = headerBytesMax;
    process.env.UWS_HTTP_MAX_HEADERS_SIZE = String(headerBytesMax + receiving.headerBytesAnswered);
    loaded = createRequire(import.meta.url)('uWebSockets.js') as Front;
  }
  return loaded;
}
