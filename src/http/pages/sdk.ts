// GET /sdk.js, the client library as one script for the pages of any site, and its source map. Read once, at the start,
// compressed when they are first asked for, and served from memory.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { browserCaches } from '../../contract/limits.js';
import type { Log } from '../../log.js';
import { scriptDoc } from '../openapi/collect.js';
import { operation } from '../openapi/document.js';
import type { Headers } from '../protocol/exchange.js';
import { notFound, type Route } from '../protocol/server.js';
import { serveEncoded } from './encoded.js';

export type SdkOptions = {
  /** The folder in which the build puts `sdk.js` and `sdk.js.map`. */
  readonly folder: string;
  readonly log: Log;
};

type File = { readonly name: string; readonly type: string; readonly headers: Headers; readonly doc: object };

const files: readonly File[] = [
  {
    name: 'sdk.js',
    type: 'text/javascript; charset=utf-8',
    headers: [['SourceMap', 'sdk.js.map']],
    doc: operation(scriptDoc('sdk', 'The client library', 'text/javascript')),
  },
  {
    name: 'sdk.js.map',
    type: 'application/json',
    headers: [],
    doc: operation(scriptDoc('sdkSourceMap', 'Its source map', 'application/json')),
  },
];

/** For every answer, so that pages that isolate themselves from other sites, or check the script's hash, can load it too. */
const always: Headers = [
  ['Access-Control-Allow-Origin', '*'],
  ['Cross-Origin-Resource-Policy', 'cross-origin'],
  ['X-Content-Type-Options', 'nosniff'],
];

const cached = `public, max-age=${browserCaches.scriptSeconds}`;

/** The routes of both files. A file that was not built is answered 404. */
export function sdkRoutes({ folder, log }: SdkOptions): Route[] {
  return files.flatMap((file) => {
    const path = join(folder, file.name);
    const found = existsSync(path);
    if (!found) log.warn({ path }, 'the client library was not built and is not served');
    const handle = found ? serveEncoded(file.type, cached, file.headers, readFileSync(path)) : notFound;
    return (['get', 'head'] as const).map((method) => ({
      method,
      path: `/${file.name}`,
      handle,
      headers: always,
      ...(method === 'get' && { doc: file.doc }),
    }));
  });
}
