// GET /sdk.js, the client library as one script for the pages of any site, and its source map: read at the start, compressed on the first
// request, and served from memory.

import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Paths } from '../../config.js';
import { browserCaches } from '../../contract/limits.js';
import type { Log } from '../../log.js';
import { scriptDoc } from '../openapi/collect.js';
import { operation } from '../openapi/document.js';
import type { Headers } from '../protocol/exchange.js';
import { notFound, type Route, withHead } from '../protocol/server.js';
import { serveEncoded } from './encoded.js';

export type SdkOptions = {
  /** The folder in which the build puts `sdk.js` and `sdk.js.map`. */
  readonly folder: string;
  readonly paths: Paths;
  readonly log: Log;
};

type File = { readonly ending: '' | '.map'; readonly type: string; readonly doc: object };

const files: readonly File[] = [
  {
    ending: '',
    type: 'text/javascript; charset=utf-8',
    doc: operation(scriptDoc('sdk', 'The client library', 'text/javascript')),
  },
  {
    ending: '.map',
    type: 'application/json',
    doc: operation(scriptDoc('sdkSourceMap', 'Its source map', 'application/json')),
  },
];

/** For every answer. They let pages load the script that isolate themselves from other sites, or that check its hash. */
const always: Headers = [
  ['Access-Control-Allow-Origin', '*'],
  ['Cross-Origin-Resource-Policy', 'cross-origin'],
  ['X-Content-Type-Options', 'nosniff'],
];

const cached = `public, max-age=${browserCaches.scriptSeconds}`;

/** The routes of both files. A file that was not built is answered 404. */
export function sdkRoutes({ folder, paths, log }: SdkOptions): Route[] {
  return files.flatMap(({ ending, type, doc }) => {
    const file = join(folder, `sdk.js${ending}`);
    const body = existsSync(file) ? readFileSync(file) : undefined;
    if (body === undefined) log.warn({ path: file }, 'the client library was not built and is not served');
    return paths.flatMap((path, index) => {
      const headers: Headers = ending === '' ? [['SourceMap', `${basename(path)}.map`]] : [];
      const handle = body === undefined ? notFound : serveEncoded(type, cached, headers, body);
      return withHead({ path: `${path}${ending}`, handle, headers: always, ...(index === 0 && { doc }) });
    });
  });
}
