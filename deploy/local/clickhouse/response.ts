// Owns a reply: headers, compression, and what a client sees of an error, also of one in the middle of a
// result.

import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, createBrotliCompress, createDeflate, createGzip, type Gzip } from 'node:zlib';
import type { Outcome } from './engine.js';
import { type ClickHouseException, httpStatus } from './errors.js';
import { responseBufferBytes, responseBufferBytesMax } from './limits.js';
import { header, type RequestOptions } from './request.js';
import type { Sink } from './result-pipe.js';

const contentTypes: Readonly<Record<string, string>> = {
  JSON: 'application/json; charset=UTF-8',
  JSONStrings: 'application/json; charset=UTF-8',
  JSONCompact: 'application/json; charset=UTF-8',
  JSONCompactStrings: 'application/json; charset=UTF-8',
  JSONEachRow: 'application/x-ndjson; charset=UTF-8',
  JSONStringsEachRow: 'application/x-ndjson; charset=UTF-8',
  JSONCompactEachRow: 'application/x-ndjson; charset=UTF-8',
  JSONCompactStringsEachRow: 'application/x-ndjson; charset=UTF-8',
  TabSeparated: 'text/tab-separated-values; charset=UTF-8',
  TSV: 'text/tab-separated-values; charset=UTF-8',
  CSV: 'text/csv; charset=UTF-8; header=absent',
  CSVWithNames: 'text/csv; charset=UTF-8; header=present',
  RowBinary: 'application/octet-stream',
  Native: 'application/octet-stream',
  Parquet: 'application/octet-stream',
  Arrow: 'application/octet-stream',
};

const nothing: Outcome = { resultRows: 0, writtenRows: 0, elapsedSeconds: 0 };

/**
 * One reply. Data is held back until it is complete or too much: so most errors have a status of their own
 * and most replies the final summary. After that it is streamed, and an error is ClickHouse's exception
 * block at the end of a body that is cut off: nobody takes it for a complete result.
 */
export class Reply implements Sink {
  readonly #response: ServerResponse;
  readonly #exceptionTag = randomBytes(8).toString('hex');
  readonly #version: string;
  #heldBytesMax = responseBufferBytes;
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  #isStreaming = false;
  #isClosed = false;
  #compressor: Gzip | undefined;

  constructor(response: ServerResponse, version: string) {
    this.#response = response;
    this.#version = version;
    response.once('close', () => {
      this.#isClosed = true;
    });
    response.setHeader('X-ClickHouse-Server-Display-Name', 'sluice');
    response.setHeader('X-ClickHouse-Timezone', 'UTC');
  }

  /** What the request asks of the reply. */
  accept(request: IncomingMessage, options: RequestOptions): void {
    if (options.waitEndOfQuery) this.#heldBytesMax = responseBufferBytesMax;
    this.#response.setHeader('X-ClickHouse-Query-Id', options.queryId.replace(/[^\x20-\x7e]/g, '?'));
    if (!options.compressResponse) return;
    const accepted = header(request, 'accept-encoding').toLowerCase();
    const codec = codecs.find(({ name }) => new RegExp(`\\b${name}\\b`).test(accepted));
    if (codec === undefined) return;
    this.#response.setHeader('Content-Encoding', codec.name);
    this.#compressor = codec.create();
  }

  setFormat(format: string): void {
    this.#response.setHeader('X-ClickHouse-Format', format);
    this.#response.setHeader('Content-Type', contentTypes[format] ?? 'text/plain; charset=UTF-8');
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  write(chunk: Uint8Array): boolean {
    if (this.#isStreaming) return this.#target.write(chunk);
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#heldBytes <= this.#heldBytesMax) return true;
    this.#response.setHeader('X-ClickHouse-Summary', summaryOf(nothing));
    return this.#stream();
  }

  drained(): Promise<void> {
    const target = this.#target;
    return new Promise((resolve) => {
      if (this.#isClosed) return resolve();
      const done = () => {
        target.off('drain', done);
        this.#response.off('close', done);
        resolve();
      };
      target.on('drain', done);
      this.#response.on('close', done);
    });
  }

  end(outcome: Outcome): void {
    if (this.#isStreaming) {
      this.#target.end();
      return;
    }
    this.#response.setHeader('X-ClickHouse-Summary', summaryOf(outcome));
    if (this.#compressor !== undefined && this.#heldBytes > 0) {
      this.#stream();
      this.#target.end();
      return;
    }
    this.#response.removeHeader('Content-Encoding');
    this.#response.setHeader('Content-Length', this.#heldBytes);
    for (const chunk of this.#held) this.#response.write(chunk);
    this.#response.end();
  }

  fail(exception: ClickHouseException): void {
    const text = `${exception.message} (version ${this.#version})\n`;
    if (!this.#isStreaming) {
      this.#compressor?.destroy();
      this.#response.removeHeader('Content-Encoding');
      this.#response.removeHeader('X-ClickHouse-Format');
      this.#response.statusCode = httpStatus(exception.code);
      this.#response.setHeader('X-ClickHouse-Exception-Code', exception.code);
      this.#response.setHeader('Content-Type', 'text/plain; charset=UTF-8');
      this.#response.setHeader('Content-Length', Buffer.byteLength(text));
      this.#response.end(text);
      return;
    }
    const mark = '__exception__';
    const tag = this.#exceptionTag;
    const block = `\r\n${mark}\r\n${tag}\r\n${text}${Buffer.byteLength(text)} ${tag}\r\n${mark}\r\n`;
    // Without the last chunk of the chunked encoding, which alone says that a body is complete.
    const cutOff = () => void this.#response.socket?.end();
    if (this.#compressor === undefined) {
      this.#response.write(block, cutOff);
    } else {
      this.#compressor.write(block);
      this.#compressor.flush(() => setImmediate(cutOff));
    }
  }

  get #target(): NodeJS.WritableStream {
    return this.#compressor ?? this.#response;
  }

  #stream(): boolean {
    this.#isStreaming = true;
    this.#response.setHeader('X-ClickHouse-Exception-Tag', this.#exceptionTag);
    if (this.#compressor !== undefined) {
      const compressor = this.#compressor;
      compressor.on('error', () => this.#response.destroy());
      this.#response.on('close', () => compressor.destroy());
      compressor.pipe(this.#response);
    }
    let goOn = true;
    for (const chunk of this.#held.splice(0)) goOn = this.#target.write(chunk);
    return goOn;
  }
}

const codecs = [
  { name: 'gzip', create: () => createGzip({ level: 3 }) },
  { name: 'deflate', create: () => createDeflate({ level: 3 }) },
  { name: 'br', create: () => createBrotliCompress({ params: { [constants.BROTLI_PARAM_QUALITY]: 3 } }) },
];

/** The engine does not tell rows read and bytes; result rows stand in for the former. */
function summaryOf(outcome: Outcome): string {
  return JSON.stringify({
    read_rows: String(outcome.resultRows),
    read_bytes: '0',
    written_rows: String(outcome.writtenRows),
    written_bytes: '0',
    total_rows_to_read: '0',
    result_rows: String(outcome.resultRows),
    result_bytes: '0',
    elapsed_ns: String(Math.round(outcome.elapsedSeconds * 1e9)),
  });
}
