// Files of the build: read at the start, compressed on the first request, and served from memory with their ETags.

import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { accepts } from '../protocol/accepts.js';
import type { Headers } from '../protocol/exchange.js';
import type { Handler } from '../protocol/server.js';

/** One encoding of a file. Each encoding has its own ETag, since their bytes differ. */
type Form = { readonly encoding: string; readonly body: Buffer; readonly etag: string };

/** The encodings of a file, the smallest first. Compressing takes a tenth of a second, on other threads. */
async function encode(body: Buffer): Promise<Form[]> {
  const hash = createHash('sha256').update(body).digest('base64url').slice(0, 22);
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } };
  const [br, zipped] = await Promise.all([
    promisify(brotliCompress)(body, quality),
    promisify(gzip)(body, { level: 9 }),
  ]);
  return [
    { encoding: 'br', body: br, etag: `"${hash}-br"` },
    { encoding: 'gzip', body: zipped, etag: `"${hash}-gzip"` },
    { encoding: 'identity', body, etag: `"${hash}"` },
  ];
}

/**
 * Serves the smallest encoding that the client accepts. `cached`: the Cache-Control header, for how long the client may use it without
 * asking again.
 */
export function serveEncoded(type: string, cached: string, headers: Headers, body: Buffer): Handler {
  let encoded: Promise<Form[]> | undefined;
  return (exchange, req) => {
    const accepted = req.getHeader('accept-encoding');
    const known = req.getHeader('if-none-match');
    exchange.dropBody();
    encoded ??= encode(body);
    exchange.attend(
      encoded.then((forms) => {
        if (exchange.ended) return;
        const plain = forms.at(-1) as Form;
        const form = forms.find(({ encoding }) => accepts(accepted, encoding)) ?? plain;
        const validators: Headers = [
          ['ETag', form.etag],
          ['Cache-Control', cached],
          ['Vary', 'Accept-Encoding'],
        ];
        if (knows(known, form.etag)) return exchange.replyEmpty(304, validators);
        const encoding: Headers = form === plain ? [] : [['Content-Encoding', form.encoding]];
        exchange.reply(200, form.body, [...validators, ...headers, ...encoding], type);
      }),
    );
  };
}

/** Whether If-None-Match contains an ETag, marked as weak or not. */
function knows(header: string, etag: string): boolean {
  const known = header.split(',').map((text) => text.trim().replace(/^W\//, ''));
  return known.includes(etag) || known.includes('*');
}
