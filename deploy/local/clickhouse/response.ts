// Owns the writing of a reply: headers, compression, and what a client sees of an error, also of one in the
// middle of a result.

import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, createBrotliCompress, createDeflate, createGzip } from 'node:zlib';
import type { Summary } from './engine.js';
import { type ClickHouseException, httpStatus } from './errors.js';
import { responseBufferBytes, responseBufferBytesMax } from './limits.js';
import { header, type RequestOptions } from './request.js';

const contentTypes: Record<string, string> = {
  JSON: 'application/json; charset=UTF-8',
  JSONCompact: 'application/json; charset=UTF-8',
  JSONEachRow: 'application/x-ndjson; charset=UTF-8',
  JSONCompactEachRow: 'application/x-ndjson; charset=UTF-8',
  TabSeparated: 'text/tab-separated-values; charset=UTF-8',
  TSV: 'text/tab-separated-values; charset=UTF-8',
  CSV: 'text/csv; charset=UTF-8; header=absent',
  CSVWithNames: 'text/csv; charset=UTF-8; header=present',
  RowBinary: 'application/octet-stream',
  Native: 'application/octet-stream',
  Parquet: 'application/octet-stream',
};

/**
 * One reply. Data is held back until it is complete or too large: so most errors have their own status and
 * most replies the final summary. After that it is streamed, and an error is ClickHouse's exception block at
 * the end of a body that is cut off: no client takes it for a complete result.
 */
export class Reply {
  readonly #response: ServerResponse;
  readonly #exceptionTag = randomBytes(8).toString('hex');
  readonly #bufferBytesMax: number;
  readonly #compressor: ReturnType<typeof createGzip> | undefined;
  readonly #encoding: string | undefined;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #streaming = false;

  constructor(request: IncomingMessage, response: ServerResponse, options: RequestOptions | undefined) {
    this.#response = response;
    this.#bufferBytesMax = options?.waitEndOfQuery ? responseBufferBytesMax : responseBufferBytes;
    response.setHeader('X-ClickHouse-Server-Display-Name', 'sluice');
    response.setHeader('X-ClickHouse-Timezone', 'UTC');
    if (options === undefined) return;
    response.setHeader('X-ClickHouse-Query-Id', options.queryId.replace(/[^\t\x20-\x7e]/g, '?'));
    if (!options.compressResponse) return;
    const accepted = header(request, 'accept-encoding').toLowerCase();
    if (/\bgzip\b/.test(accepted)) {
      this.#encoding = 'gzip';
      this.#compressor = createGzip({ level: 3 });
    } else if (/\bdeflate\b/.test(accepted)) {
      this.#encoding = 'deflate';
      this.#compressor = createDeflate({ level: 3 });
    } else if (/\bbr\b/.test(accepted)) {
      this.#encoding = 'br';
      this.#compressor = createBrotliCompress({ params: { [constants.BROTLI_PARAM_QUALITY]: 3 } });
    }
  }

  setFormat(format: string): void {
    this.#response.setHeader('X-ClickHouse-Format', format);
    this.#response.setHeader('Content-Type', contentTypes[format] ?? 'text/plain; charset=UTF-8');
  }

  /** False: the caller should wait for `drained` before it writes more. */
  write(chunk: Uint8Array): boolean {
    if (this.#streaming) return this.#sink.write(chunk);
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.length;
    if (this.#pendingBytes <= this.#bufferBytesMax) return true;
    this.#startStreaming();
    let more = true;
    for (const held of this.#pending.splice(0)) more = this.#sink.write(held);
    return more;
  }

  drained(): Promise<void> {
    const sink = this.#sink;
    return new Promise((resolve) => {
      const done = () => {
        sink.off('drain', done);
        this.#response.off('close', done);
        resolve();
      };
      sink.once('drain', done);
      this.#response.once('close', done);
    });
  }

  end(summary: Summary): void {
    if (this.#streaming) {
      this.#sink.end();
      return;
    }
    this.#response.setHeader('X-ClickHouse-Summary', summaryHeader(summary));
    const body = this.#pending.length === 1 ? (this.#pending[0] as Uint8Array) : Buffer.concat(this.#pending);
    if (this.#compressor === undefined || body.length === 0) {
      this.#response.setHeader('Content-Length', body.length);
      this.#response.end(body);
      return;
    }
    this.#startStreaming();
    this.#sink.end(body);
  }

  fail(exception: ClickHouseException): void {
    const text = `${exception.message} (version 26.7)\n`;
    if (!this.#streaming) {
      this.#compressor?.destroy();
      this.#response.statusCode = httpStatus(exception.code);
      this.#response.setHeader('X-ClickHouse-Exception-Code', exception.code);
      this.#response.setHeader('Content-Type', 'text/plain; charset=UTF-8');
      this.#response.setHeader('Content-Length', Buffer.byteLength(text));
      this.#response.end(text);
      return;
    }
    const tag = this.#exceptionTag;
    const block = `\r\n__exception__\r\n${tag}\r\n${text}${Buffer.byteLength(text)} ${tag}\r\n__exception__\r\n`;
    const cutOff = () => this.#response.socket?.end();
    if (this.#compressor === undefined) {
      this.#response.write(block, cutOff);
    } else {
      this.#compressor.write(block);
      this.#compressor.flush(cutOff);
    }
  }

  get #sink(): NodeJS.WritableStream {
    return this.#compressor ?? this.#response;
  }

  #startStreaming(): void {
    this.#streaming = true;
    if (this.#compressor !== undefined) {
      this.#response.setHeader('Content-Encoding', this.#encoding as string);
      this.#compressor.on('error', () => this.#response.destroy());
      this.#response.on('close', () => this.#compressor?.destroy());
      this.#compressor.pipe(this.#response);
    }
    if (!this.#response.hasHeader('X-ClickHouse-Summary')) {
      this.#response.setHeader(
        'X-ClickHouse-Summary',
        summaryHeader({ rows: 0, writtenRows: 0, elapsedSeconds: 0 }),
      );
    }
    this.#response.setHeader('X-ClickHouse-Exception-Tag', this.#exceptionTag);
  }
}

function summaryHeader(summary: Summary): string {
  const read = summary.writtenRows === 0 ? summary.rows : summary.writtenRows;
  return JSON.stringify({
    read_rows: String(read),
    read_bytes: '0',
    written_rows: String(summary.writtenRows),
    written_bytes: '0',
    total_rows_to_read: '0',
    result_rows: String(summary.rows),
    result_bytes: '0',
    elapsed_ns: String(Math.round(summary.elapsedSeconds * 1e9)),
  });
}
