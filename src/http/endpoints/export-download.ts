// Sends an export while its records are read: as lines, compressed if the client accepts that, or as an archive for people.

import { pipeline } from 'node:stream';
import { createGzip } from 'node:zlib';
import type { Lines } from '../../clickhouse/answers.js';
import { Unavailable } from '../../contract/errors.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import { type ExportFormat, exportFormats } from '../../contract/privacy-answers.js';
import { archiveOf } from '../../privacy/export/archive.js';
import type { Download } from '../../privacy/export/downloads.js';
import { type ReadOptions, readUsersRecords } from '../../privacy/export/read.js';
import type { StoredExport } from '../../privacy/export/request.js';
import { type Times, timesIn } from '../../privacy/export/times.js';
import type { Redis } from '../../redis/client.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import { accepts } from '../protocol/accepts.js';
import type { AnswerStream } from '../protocol/answer-stream.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { readParameters } from '../protocol/query.js';

/** The form in which a download is requested. */
export type Wanted = {
  readonly format: ExportFormat;
  /** How an archive shows times. */
  readonly times: Times;
};

export type SendOptions = Wanted & {
  /** Whether the client accepts compressed lines. */
  readonly gzip: boolean;
  /** Calls `stop` when the reader may no longer read the export, because they signed out or lost the key. */
  readonly watch: (stop: () => void) => () => void;
};

/**
 * Sends an export. Settles with the number of records. The answer begins with the first lines: a failure before them is answered with its
 * own status, a later one cuts the answer off.
 */
export async function sendExport(
  reading: ReadOptions,
  exchange: Exchange,
  request: StoredExport,
  download: Download,
  { format, times, gzip, watch }: SendOptions,
): Promise<number> {
  const found = readUsersRecords(reading, request, download.signal);
  let records = 0;
  let stream: AnswerStream | undefined;
  async function* withEnd(): AsyncGenerator<Lines> {
    for await (const lines of found) {
      records += lines.records;
      yield lines;
    }
    yield { bytes: Buffer.from(`${JSON.stringify({ kind: 'end', records })}\n`), count: 1 };
  }
  const lines = withEnd();
  const all =
    format === 'zip'
      ? archiveOf(lines, { times, environments: await namesOfEnvironments(reading.redis) })
      : bytesOf(lines);
  // Otherwise the stream would wait for a client that is not reading.
  download.signal.addEventListener('abort', () => stream?.cutOff(), { once: true });
  const endWatch = watch(download.abort);
  try {
    const first = await all.next();
    const isCompressed = gzip && format === 'ndjson';
    stream = exchange.stream(
      format === 'zip' ? archiveHeaders(request) : linesHeaders(isCompressed),
      types[format],
    );
    if (stream === undefined) throw new DownloadBroken();
    const reader = stream;
    const body = startingWith(first.value as Buffer, all);
    for await (const bytes of isCompressed ? compressed(body) : body) {
      const write = () => reader.write(bytes);
      if (!(await download.deliver(bytes.length, write))) throw new DownloadBroken();
    }
    if (!(await stream.end())) throw new DownloadBroken();
    return records;
  } catch (error) {
    const isBroken = download.signal.aborted;
    download.abort();
    stream?.cutOff();
    throw isBroken ? new DownloadBroken() : error;
  } finally {
    endWatch();
    // The archive may be waiting for its reader.
    await lines.return(undefined);
    await all.return(undefined);
  }
}

/** The client has disconnected, or the download took too long, perhaps before the answer began. */
export class DownloadBroken extends Unavailable {
  override readonly toCallers = 'The export cannot be read now.';
}

const types = { ndjson: 'application/x-ndjson', zip: 'application/zip' } as const;

async function* bytesOf(lines: AsyncIterable<Lines>): AsyncGenerator<Buffer> {
  for await (const { bytes } of lines) yield bytes;
}

async function* startingWith(first: Buffer, others: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield* others;
}

async function* compressed(pieces: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  // The fastest level: CPU is scarcer than the bandwidth of a download.
  const gzip = createGzip({ level: 1 });
  // `pipeline` passes an error of the pieces on to `gzip`.
  pipeline(pieces, gzip, () => undefined);
  for await (const bytes of gzip) yield bytes as Buffer;
}

function linesHeaders(gzip: boolean): Headers {
  return [
    ['Cache-Control', 'no-store'],
    ['Vary', 'Accept-Encoding'],
    ...(gzip ? ([['Content-Encoding', 'gzip']] as const) : []),
  ];
}

function archiveHeaders({ user_export_id: id }: StoredExport): Headers {
  return [
    ['Cache-Control', 'no-store'],
    ['Content-Disposition', `attachment; filename="export-${id}.zip"`],
  ];
}

async function namesOfEnvironments(redis: Redis): Promise<ReadonlyMap<string, string>> {
  const { environments } = await readLoadedRegistry(redis);
  return new Map([...environments].map(([appId, { name }]) => [appId, name]));
}

/** The form in which a download is requested, or the reason to refuse it. */
export function wantedOf(query: string): Wanted | Rejection {
  const parameters = readParameters(query);
  if ('code' in parameters) return parameters;
  const asked = parameters.getAll('format').join() || 'ndjson';
  const format = exportFormats.find((each) => each === asked);
  if (format === undefined)
    return rejection('invalid_parameter', `format must be one of: ${exportFormats.join(', ')}.`, 'format');
  const times = timesIn(parameters.get('zone') || 'UTC');
  if (times === undefined)
    return rejection('invalid_parameter', 'zone must be a time zone such as Europe/Rome.', 'zone');
  return { format, times };
}

/** Whether an Accept-Encoding header names gzip without refusing it. */
export function acceptsGzip(header: string): boolean {
  return accepts(header, 'gzip') || accepts(header, 'x-gzip');
}
