// What has happened to records, by their idempotency keys.

import { counts } from '../../contract/lengths.js';
import { chunksOf, createCalls } from './calls.js';
import type { Settings } from './options.js';
import { parseObject } from './records.js';
import type { Transport } from './transport.js';

/** What has happened to the record with a key. */
export type Receipt = {
  readonly idempotencyKey: string;
  /**
   * `stored`: it is in ClickHouse. `waiting`: it is accepted and will be stored. `deleted`: it was stored, and has been deleted since.
   * `unknown`: no such record is known; no trace is kept of a refused one.
   */
  readonly status: 'stored' | 'waiting' | 'deleted' | 'unknown';
  /** Only if it is stored. */
  readonly eventId?: string;
  readonly segment?: string;
  /** Only if it is stored; exact to a second. */
  readonly acceptedAt?: Date;
};

export type ReceiptsOptions = {
  /** Ends the search. */
  readonly signal?: AbortSignal | undefined;
};

type Sent = {
  readonly idempotency_key: string;
  readonly status: Receipt['status'];
  readonly event_id?: string;
  readonly segment?: string;
  readonly accepted_at?: string;
};

/** Yields the receipts in the order of the keys, a thousand at a time. */
export async function* findReceipts(
  settings: Settings,
  transport: Transport,
  keys: Iterable<string> | AsyncIterable<string>,
  { signal }: ReceiptsOptions = {},
): AsyncGenerator<Receipt, void, undefined> {
  const { appId, writeKey } = settings;
  if (writeKey === undefined) throw new TypeError('receipts needs the option writeKey');
  const { ask, fail } = createCalls(settings, transport, signal);

  async function askFor(asked: readonly string[]): Promise<readonly Receipt[]> {
    const body = JSON.stringify({ app_id: appId, idempotency_keys: asked });
    const answer = await ask('POST', '/api/v1/receipts', `Bearer ${writeKey}`, body);
    const { receipts } = (parseObject(answer.text) ?? {}) as { receipts?: unknown };
    if (answer.status !== 200 || !Array.isArray(receipts)) throw fail(answer);
    return (receipts as Sent[]).map((each) => ({
      idempotencyKey: each.idempotency_key,
      status: each.status,
      ...(each.event_id !== undefined && { eventId: each.event_id }),
      ...(each.segment !== undefined && { segment: each.segment }),
      ...(each.accepted_at !== undefined && { acceptedAt: new Date(each.accepted_at) }),
    }));
  }

  for await (const asked of chunksOf(keys, counts.receiptKeysMax)) yield* await askFor(asked);
}
