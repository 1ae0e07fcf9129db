// Exports one user with millions of events from a table with ten times as many: how long until the first byte, how long until the end, and
// how much memory the API needs.

import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { createGunzip } from 'node:zlib';
import { exportPath, submitExport, untilExportComplete } from '../../test/harness/user-export.js';
import type { Deployment } from '../deployment/deployment.js';
import { insertEvents } from '../deployment/made-events.js';
import { startMeter } from '../deployment/meter.js';
import { BenchError } from '../failure.js';

export type ExportRun = Awaited<ReturnType<typeof runExport>>;

export const exportedUser = 'gateway@example.com';
const firstSegment = BigInt(Date.UTC(2025, 0, 12)) * 1000n;
const insertEveryUs = 14n * 86_400_000_000n;
const sampleEveryMs = 100;
const mib = 1024 ** 2;

/** Gives the user this many events, spread over months by their inserts like those of the other users. */
export function fillUser(deployment: Deployment, appId: string, events: number): Promise<void> {
  return insertEvents(deployment, 0, events, (_from, insert) => ({
    segment: String(firstSegment + BigInt(insert) * insertEveryUs),
    with: ['cityHash64(n) AS random'],
    appId: `'${appId}'`,
    event: "['Page Viewed', 'Product Viewed', 'Order Completed'][1 + random % 3]",
    identity: `'${exportedUser}'`,
    sessionId: 'hex(intDiv(n, 20))',
    msBefore: 'random % 86400000',
    properties: `map('order_id', concat('order-', toString(n)), 'amount', toString((random % 100000) / 100), 'currency', 'EUR')`,
  }));
}

/** Requests the export of the user and reads all of it. Rejects unless it has this many records. */
export async function runExport(deployment: Deployment, accessToken: string, records: number, gzip: boolean) {
  const { url, memory, cpu } = deployment;
  const id = await submitExport({ baseUrl: url }, accessToken, [{ identity: exportedUser }]);
  await untilExportComplete({ baseUrl: url }, accessToken, id);
  const before = memory().api / mib;
  let most = before;
  const sampling = setInterval(() => {
    most = Math.max(most, memory().api / mib);
  }, sampleEveryMs);
  const readCpu = startMeter(cpu);
  try {
    const startedAt = performance.now();
    const read = await download(`${url}${exportPath}/${id}/data`, accessToken, gzip, startedAt);
    const seconds = (performance.now() - startedAt) / 1000;
    if (read.lastLine !== `{"kind":"end","records":${records}}`) {
      const end = read.lastLine.slice(0, 200);
      throw new BenchError(`the export ended with ${end} instead of ${records} records`);
    }
    const { api = 0, clickhouse = 0 } = readCpu().used;
    return {
      gzip,
      /** The bytes received, which are compressed with gzip. */
      bytes: read.bytes,
      /** This and `seconds` count from the request for the data. */
      firstByteSeconds: read.firstByteSeconds,
      seconds,
      cpu: { api: api / 1e6, clickhouse: clickhouse / 1e6 },
      /** Resident memory of the API before the download, and the most during it. */
      apiMib: { before, most },
    };
  } finally {
    clearInterval(sampling);
  }
}

/** Reads an answer as fast as it arrives, and keeps only its last line. */
async function download(url: string, accessToken: string, gzip: boolean, startedAt: number) {
  const headers = { authorization: `Bearer ${accessToken}`, ...(gzip && { 'accept-encoding': 'gzip' }) };
  // Its own connection: the API closes idle ones while the bench is busy.
  const request = get(url, { headers, agent: false });
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  // A malformed answer is reported as an error of its request.
  request.on('error', (error) => answer.destroy(error));
  if (answer.statusCode !== 200) throw new BenchError(`the export was answered ${answer.statusCode}`);
  const encoding = answer.headers['content-encoding'];
  if ((encoding === 'gzip') !== gzip) throw new BenchError(`the export came as ${encoding}`);
  let bytes = 0;
  let firstByteSeconds = 0;
  answer.on('data', (piece: Buffer) => {
    if (bytes === 0) firstByteSeconds = (performance.now() - startedAt) / 1000;
    bytes += piece.length;
  });
  let end: Buffer = Buffer.alloc(0);
  for await (const piece of gzip ? answer.pipe(createGunzip()) : answer) {
    end = piece.length >= endBytesMax ? piece.subarray(-endBytesMax) : Buffer.concat([end, piece]);
    if (end.length > endBytesMax) end = end.subarray(-endBytesMax);
  }
  const lastLine = end.toString().trimEnd().split('\n').at(-1) ?? '';
  return { bytes, firstByteSeconds, lastLine };
}

/** Longer than the last line. */
const endBytesMax = 1_000;
