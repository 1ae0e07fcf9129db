// Sends an export: the users' records line by line, while they are read, compressed for a client that takes it.

import { pipeline } from 'node:stream';
import { createGzip } from 'node:zlib';
import type { Download } from '../../export/downloads.js';
import { type ReadOptions, readUsersRecords } from '../../export/read.js';
import type { StoredExport } from '../../export/request.js';
import type { AnswerStream } from '../protocol/answer-stream.js';
import type { Exchange, Headers } from '../protocol/exchange.js';

export type SendOptions = {
  readonly gzip: boolean;
  /** Calls `stop` when the reader, who may be signed out or lose the key meanwhile, may no longer read the export. */
  readonly watch: (stop: () => void) => () => void;
};

/**
 * Sends the lines of an export; settles with the number of records. The answer begins with the first lines, so whatever fails
 * before them is still answered with its status. What fails later cuts the answer off.
 */
export async function sendExport(
  reading: ReadOptions,
  exchange: Exchange,
  request: StoredExport,
  download: Download,
  { gzip, watch }: SendOptions,
): Promise<number> {
  const lines = readUsersRecords(reading, request, download.signal);
  let records = 0;
  let stream: AnswerStream | undefined;
  async function* pieces(): AsyncGenerator<Buffer> {
    for await (const { bytes, records: count } of lines) {
      records += count;
      yield bytes;
    }
    yield Buffer.from(`${JSON.stringify({ kind: 'end', records })}\n`);
  }
  const all = pieces();
  // A reader who takes nothing now is not waited for.
  download.signal.addEventListener('abort', () => stream?.cutOff(), { once: true });
  const endWatch = watch(download.abort);
  try {
    const first = await all.next();
    stream = exchange.stream(headersOf(gzip), 'application/x-ndjson');
    if (stream === undefined) throw new DownloadBroken();
    const reader = stream;
    const body = startingWith(first.value as Buffer, all);
    for await (const bytes of gzip ? compressed(body) : body) {
      const write = () => reader.write(bytes);
      if (!(await download.deliver(bytes.length, write))) throw new DownloadBroken();
    }
    stream.end();
    return records;
  } catch (error) {
    const isBroken = download.signal.aborted;
    download.abort();
    stream?.cutOff();
    throw isBroken ? new DownloadBroken() : error;
  } finally {
    endWatch();
    await all.return(undefined);
  }
}

/** The client is gone, or the download took too long. */
export class DownloadBroken extends Error {}

async function* startingWith(first: Buffer, others: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield* others;
}

async function* compressed(pieces: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  // The fastest level: CPU is scarcer than the bandwidth of a download.
  const gzip = createGzip({ level: 1 });
  // An error of the pieces is also one of what they are compressed to.
  pipeline(pieces, gzip, () => undefined);
  for await (const bytes of gzip) yield bytes as Buffer;
}

function headersOf(gzip: boolean): Headers {
  return [
    ['Cache-Control', 'no-store'],
    ['Vary', 'Accept-Encoding'],
    ...(gzip ? ([['Content-Encoding', 'gzip']] as const) : []),
  ];
}

/** Whether a client names gzip, and not only to refuse it. */
export function acceptsGzip(header: string): boolean {
  return header
    .split(',')
    .some((coding) => /^\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*$).*)?$/i.test(coding));
}
