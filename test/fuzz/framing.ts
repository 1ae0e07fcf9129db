// Finds requests in the bytes that were sent, independently of the service: where each ends, and what its body contains. It reads only
// those headers that frame or encode the body.

import { gunzipSync } from 'node:zlib';

export type ReadRequest = {
  readonly method: string;
  /** The path without the query. */
  readonly path: string;
  readonly chunked: boolean;
  /** The inflated body; undefined if it does not match its encoding. */
  readonly body: Buffer | undefined;
  /** Where the next request begins. */
  readonly end: number;
};

/** Reads the request that begins at `from`; undefined if it is incomplete or not framed by the standard. */
export function readRequest(bytes: Buffer, from: number): ReadRequest | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n', from);
  if (headEnd < 0) return undefined;
  const [first = '', ...lines] = bytes.toString('latin1', from, headEnd).split('\r\n');
  const [method = '', target = '', version = ''] = first.split(' ');
  if (version !== 'HTTP/1.1') return undefined;
  const valuesOf = (name: string) =>
    lines
      .filter((line) => line.slice(0, line.indexOf(':')).toLowerCase() === name)
      // The HTTP parser drops bytes above 7F before a value, as it drops spaces.
      .map((line) =>
        line
          .slice(line.indexOf(':') + 1)
          .replace(/^[^!-\x7f]+/, '')
          .trim(),
      );
  const lengths = valuesOf('content-length');
  const transfers = valuesOf('transfer-encoding');
  const framed = { method, path: target.split('?')[0] ?? '', chunked: transfers.length > 0 };
  const bodyAt = headEnd + 4;
  const gzip = valuesOf('content-encoding').some((value) => value.toLowerCase() === 'gzip');

  if (lengths.length + transfers.length > 1) return undefined;
  if (transfers.length === 1) {
    if (transfers[0]?.toLowerCase() !== 'chunked') return undefined;
    const read = readChunks(bytes, bodyAt);
    return read === undefined ? undefined : { ...framed, body: inflated(read.body, gzip), end: read.end };
  }
  const length = lengths[0] ?? '0';
  if (!/^\d{1,15}$/.test(length) || bytes.length < bodyAt + Number(length)) return undefined;
  const end = bodyAt + Number(length);
  return { ...framed, body: inflated(bytes.subarray(bodyAt, end), gzip), end };
}

function readChunks(bytes: Buffer, from: number): { body: Buffer; end: number } | undefined {
  const chunks: Buffer[] = [];
  for (let at = from; ; ) {
    const sizeEnd = bytes.indexOf('\r\n', at);
    const size = bytes.toString('latin1', at, Math.max(sizeEnd, at));
    if (sizeEnd < 0 || !/^[0-9a-f]{1,7}$/i.test(size)) return undefined;
    const chunkEnd = sizeEnd + 2 + Number.parseInt(size, 16);
    if (bytes.toString('latin1', chunkEnd, chunkEnd + 2) !== '\r\n') return undefined;
    if (chunkEnd === sizeEnd + 2) return { body: Buffer.concat(chunks), end: chunkEnd + 2 };
    chunks.push(bytes.subarray(sizeEnd + 2, chunkEnd));
    at = chunkEnd + 2;
  }
}

function inflated(body: Buffer, gzip: boolean): Buffer | undefined {
  if (!gzip) return body;
  try {
    return gunzipSync(body);
  } catch {
    return undefined;
  }
}

/** The JSON document of a body; undefined if the body is not JSON in UTF-8. */
export function readDocument(body: Buffer | undefined): Record<string, unknown> | undefined {
  if (body === undefined) return undefined;
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
