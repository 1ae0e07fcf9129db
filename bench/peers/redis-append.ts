// The floor of acknowledging: Redis alone. It appends the bytes of the service's commits to strings as long as segments, in as many commands
// as the service uses, and syncs its file before every answer.

import { Redis } from 'ioredis';
import type { RedisHandle } from '../../test/harness/services.js';
import { generating } from '../deployment/meter.js';
import { cpuMicroseconds } from '../deployment/processes.js';
import { BenchError } from '../failure.js';
import { measure, type Run, type Subject } from '../throughput/measure.js';
import { rowOf } from './engine.js';

/** Events per commit of the service, and the number of commands that its script runs. */
export type CommitShape = { readonly events: number; readonly commands: number };

const segmentCommits = 200;
const warmUpSeconds = 0.5;
/** Appends at most this much, so that Redis's memory suffices. */
const bytesMax = 2_000_000_000;

/** Appends for a while. Settles when Redis has answered the last command and its strings have the expected length. */
export async function runAppend(
  server: RedisHandle,
  appId: string,
  commit: CommitShape,
  seconds: number,
): Promise<Run> {
  const redis = new Redis(server.url);
  const nowMs = Date.now();
  const pieces = Array.from({ length: segmentCommits }, (_, index) => {
    const first = index * commit.events;
    const rows = Array.from({ length: commit.events }, (__, row) => rowOf(appId, first + row, nowMs));
    return inPieces(Buffer.from(rows.join('')), commit.commands);
  });
  let sent = 0;
  let bytes = 0;
  /** Settles with the number of commits. */
  const send = async (lasting: number) => {
    const first = sent;
    const endsAt = performance.now() + lasting * 1_000;
    while (performance.now() < endsAt && bytes < bytesMax) {
      const pipeline = redis.pipeline();
      for (const piece of pieces[sent % segmentCommits] ?? []) {
        pipeline.append(`segment:${Math.floor(sent / segmentCommits)}`, piece);
        bytes += piece.length;
      }
      await pipeline.exec();
      sent += 1;
    }
    return sent - first;
  };
  const subject: Subject = {
    url: server.url,
    cpu: () => ({ redis: cpuMicroseconds(server.pid) }),
    settle: async () => undefined,
    count: async () => sent * commit.events,
    stored: async () => {
      let held = 0;
      for (let segment = 0; segment * segmentCommits < sent; segment += 1) {
        held += await redis.strlen(`segment:${segment}`);
      }
      if (held !== bytes) throw new BenchError(`Redis holds ${held} of ${bytes} bytes`);
      return { events: sent * commit.events, ids: sent * commit.events };
    },
  };
  try {
    const before = { events: (await send(warmUpSeconds)) * commit.events };
    const load = async () => {
      const { result: requests, ...found } = await generating(() => send(seconds));
      return { ...found, requests, acknowledged: { events: requests * commit.events } };
    };
    return (await measure({ subject, appId, before, load })).run;
  } finally {
    await redis.flushall();
    redis.disconnect();
  }
}

/** Divides a buffer into pieces of about equal length. */
function inPieces(whole: Buffer, count: number): Buffer[] {
  const at = (piece: number) => Math.floor((piece * whole.length) / count);
  return Array.from({ length: count }, (_, piece) => whole.subarray(at(piece), at(piece + 1)));
}
