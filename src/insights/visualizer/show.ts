// Shows what a paired device has sent. Called when the server's answer is known, it publishes both while the pairing is live, and reports
// whether the pairing has ended. Best effort: nothing here may fail or delay the answer.

import { visualizer } from '../../contract/limits.js';
import type { Collected, OnCollected } from '../../ingest/collect.js';
import type { Log } from '../../log.js';
import type { Redis } from '../../redis/client.js';
import { inTime } from '../../wait.js';
import type { Channel } from './channel.js';
import { pairingIdOfSecret, readPairingState } from './pairings.js';

export type BatchPublisherOptions = { readonly redis: Redis; readonly channel: Channel; readonly log: Log };

/**
 * Makes the function to be called with every batch that carries a pairing. That function settles within `lookupMsMax`, never rejects, and
 * settles with false only if the pairing is known to have ended.
 */
export function createBatchPublisher({ redis, channel, log }: BatchPublisherOptions): OnCollected {
  async function show(collected: Collected): Promise<boolean> {
    const { pairing, appId } = collected;
    const id = pairingIdOfSecret(pairing);
    if (id === undefined) return false;
    const state = await readPairingState(redis, id, appId);
    if (state === 'live') publish(id, collected);
    return state !== 'ended';
  }

  function publish(id: string, collected: Collected): void {
    const { json, count } = describeBatch(collected, Date.now());
    channel.publish(id, { kind: 'batch', count, json }).catch(noteFault);
  }

  function noteFault(error: unknown): void {
    log.debug({ error }, 'a batch was not shown in the visualizer');
  }

  return async (collected) => {
    try {
      return await inTime(show(collected), visualizer.lookupMsMax, true);
    } catch (error) {
      noteFault(error);
      return true;
    }
  };
}

const shownFields = [
  'type',
  'id',
  'user_id',
  'identity',
  'session_id',
  'time',
  'event',
  'properties',
  'autocaptured',
] as const;

/** A batch in the form that the page gets, cut to the allowed size. */
function describeBatch({ messages, answers }: Collected, nowMs: number) {
  const parts: string[] = [];
  let bytes = 0;
  for (const [index, message] of messages.entries()) {
    const part = JSON.stringify({ ...pick(message), answer: answers[index] });
    bytes += Buffer.byteLength(part) + 1;
    if (bytes > visualizer.batchBytesMax) break;
    parts.push(part);
  }
  const leftOut = messages.length - parts.length;
  const head = JSON.stringify({ type: 'batch', at: new Date(nowMs).toISOString(), left_out: leftOut });
  return { json: `${head.slice(0, -1)},"messages":[${parts.join(',')}]}`, count: messages.length };
}

function pick(message: unknown): Record<string, unknown> {
  if (typeof message !== 'object' || message === null) return {};
  return Object.fromEntries(shownFields.map((name) => [name, (message as Record<string, unknown>)[name]]));
}
