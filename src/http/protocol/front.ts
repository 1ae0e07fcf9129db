// Loads uWebSockets.js with a bound on headers, which it reads from an environment variable once, when it is loaded. Its default is 4 KiB,
// but a page with our cookies and those of its site may send more. The bound is set above our own, since the library's refusal lacks CORS
// headers, so pages of other sites would see no answer at all.

import { createRequire } from 'node:module';
import { receiving } from '../../contract/limits.js';

type Front = typeof import('uWebSockets.js');

let loaded: Front | undefined;

export const headerBound: { bytesMax: number } = { bytesMax: receiving.headerBytesMax };

/** Loads uWebSockets.js. Only the first call in a process decides `headerBytesMax`. */
export function front(headerBytesMax: number = receiving.headerBytesMax): Front {
  if (loaded === undefined) {
    headerBound.bytesMax = headerBytesMax;
    process.env.UWS_HTTP_MAX_HEADERS_SIZE = String(headerBytesMax + receiving.headerBytesAnswered);
    loaded = createRequire(import.meta.url)('uWebSockets.js') as Front;
  }
  return loaded;
}
