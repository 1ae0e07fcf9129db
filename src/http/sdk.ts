// GET /sdk.js, the client library as one script for the pages of any site, and its source map. Read and
// compressed once, at the start, and served from memory.

import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import type { Log } from '../log.js';
import type { Headers } from './exchange.js';
import { type Handler, notFound, type Route, withoutBody } from './server.js';

export type SdkOptions = {
  /** Where the build puts `sdk.js` and `sdk.js.map`. */
  readonly folder: string;
  readonly log: Log;
};

type File = { readonly name: string; readonly type: string; readonly headers: Headers };

const files: readonly File[] = [
  { name: 'sdk.js', type: 'text/javascript; charset=utf-8', headers: [['SourceMap', 'sdk.js.map']] },
  { name: 'sdk.js.map', type: 'application/json', headers: [] },
];

/** For every answer: a page that isolates itself from other sites, or checks the script's hash, may load it too. */
const always: Headers = [
  ['Access-Control-Allow-Origin', '*'],
  ['Cross-Origin-Resource-Policy', 'cross-origin'],
  ['X-Content-Type-Options', 'nosniff'],
];

const cached = ['Cache-Control', 'public, max-age=3600'] as const;

/** The routes of both files; one that was not built is answered 404. */
export function sdkRoutes({ folder, log }: SdkOptions): Route[] {
  return files.flatMap((file) => {
    const path = join(folder, file.name);
    const found = existsSync(path);
    if (!found) log.warn({ path }, 'the client library was not built and is not served');
    const handle = found ? serve(file, encode(readFileSync(path))) : notFound;
    return (['get', 'head'] as const).map((method) => ({
      method,
      path: `/${file.name}`,
      handle,
      headers: always,
    }));
  });
}

/** One form of a file, with an ETag of its own, since their bytes differ. */
type Form = { readonly encoding: string; readonly body: Buffer; readonly etag: string };

/** The forms of a file, the smallest first. */
function encode(body: Buffer): Form[] {
  const hash = createHash('sha256').update(body).digest('base64url').slice(0, 22);
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } };
  return [
    { encoding: 'br', body: brotliCompressSync(body, quality), etag: `"${hash}-br"` },
    { encoding: 'gzip', body: gzipSync(body, { level: 9 }), etag: `"${hash}-gzip"` },
    { encoding: 'identity', body, etag: `"${hash}"` },
  ];
}

function serve({ type, headers }: File, forms: readonly Form[]): Handler {
  const plain = forms.at(-1) as Form;
  return (exchange, req) => {
    const accepted = req.getHeader('accept-encoding');
    const known = req.getHeader('if-none-match');
    withoutBody(exchange);
    const form = forms.find(({ encoding }) => accepts(accepted, encoding)) ?? plain;
    const validators: Headers = [['ETag', form.etag], cached, ['Vary', 'Accept-Encoding']];
    if (knows(known, form.etag)) return exchange.replyEmpty(304, validators);
    const encoding: Headers = form === plain ? [] : [['Content-Encoding', form.encoding]];
    exchange.reply(200, form.body, [...validators, ...headers, ...encoding], type);
  };
}

/** Whether Accept-Encoding names a coding without refusing it. */
function accepts(header: string, coding: string): boolean {
  const entry = header
    .toLowerCase()
    .split(',')
    .map((part) => part.split(';').map((text) => text.trim()))
    .find(([name]) => name === coding);
  return entry !== undefined && !entry.some((parameter) => /^q=0(?:\.0*)?$/.test(parameter));
}

/** Whether If-None-Match holds an ETag; whether that is marked as weak does not matter. */
function knows(header: string, etag: string): boolean {
  const known = header.split(',').map((text) => text.trim().replace(/^W\//, ''));
  return known.includes(etag) || known.includes('*');
}
