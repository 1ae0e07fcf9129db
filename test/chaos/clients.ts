// What the clients of a round send: single events, bulk requests, user properties, identifications and the client library's messages,
// with and without keys. Some are repeats, and one user exceeds every limit.

import type { Endpoint, SentEvent } from '../harness/endpoints.js';
import { keyAt } from '../harness/endpoints.js';
import type { Producer, Sending } from '../harness/load.js';

export function createMix(producer: Producer): () => Sending {
  const identified = new Set<number>();
  let requests = 0;
  let properties = 0;
  let newestUserId = 0;

  function event(): SentEvent {
    const next = producer.nextEvent();
    if (next.user_id !== undefined) newestUserId = Number(next.user_id);
    return next;
  }

  /** An event of the busiest user, who soon exceeds the limit. */
  function busiest(): SentEvent {
    const { user_id: _, ...next } = event();
    return { ...next, identity: `${producer.mark}-hot@example.com` };
  }

  function userProperties(): SentEvent {
    properties += 1;
    const user = properties % 3 !== 0 ? 'hot' : String(properties % 40);
    const marker = `${producer.mark}-p${properties}`;
    const identity = `${producer.mark}-${user}@example.com`;
    return {
      kind: 'user_properties',
      event: '',
      identity,
      properties: { marker, plan: 'pro', score: properties / 4 },
    };
  }

  /** Each user_id is identified once. */
  function identification(): SentEvent | undefined {
    if (newestUserId === 0 || identified.has(newestUserId)) return undefined;
    identified.add(newestUserId);
    const user_id = String(newestUserId);
    const identity = `${producer.mark}-${Math.floor(newestUserId / 10)}@example.com`;
    return {
      kind: 'identify',
      event: '',
      user_id,
      identity,
      properties: { marker: `${user_id} is ${identity}` },
    };
  }

  function messages(count: number): SentEvent[] {
    const kinds = [event, userProperties, () => identification() ?? event(), event];
    return Array.from({ length: count }, (_, index) => (kinds[(requests + index) % 4] as () => SentEvent)());
  }

  /** A repeat of an earlier request whose records all have keys, whatever its outcome was. */
  function repeated(): Sending | undefined {
    const { settled } = producer;
    const request = settled[(requests * 7_919) % Math.max(settled.length, 1)];
    if (request?.endpoint === undefined) return undefined;
    const { endpoint, events } = request;
    return events.every((sent) => keyAt(endpoint, sent) !== undefined) ? { endpoint, events } : undefined;
  }

  const one = (endpoint: Endpoint, sent: SentEvent): Sending => ({ endpoint, events: [sent] });

  return () => {
    requests += 1;
    if (requests % 19 === 0) return one('track', { ...event(), identity: 'both', user_id: '1' });
    const again = requests % 13 === 0 ? repeated() : undefined;
    if (again !== undefined) return again;
    if (requests % 4 === 0) {
      return { endpoint: 'bulk', events: Array.from({ length: 2 + (requests % 19) }, event) };
    }
    if (requests % 5 === 1) return { endpoint: 'collect', events: messages(1 + (requests % 4)) };
    if (requests % 7 === 2) return one('user_properties', userProperties());
    const merged = requests % 11 === 3 ? identification() : undefined;
    if (merged !== undefined) return one('identify', merged);
    return one('track', requests % 2 === 0 ? busiest() : event());
  };
}

const fatCount = 12;

/** Events of half a megabyte in total, to fill the backlog. */
export function fatEvents(producer: Producer): SentEvent[] {
  const filler = Array.from({ length: 50 }, (_, index) => [`filler ${index}`, 'x'.repeat(900)]);
  return Array.from({ length: fatCount }, () => ofOwnUser(producer, Object.fromEntries(filler)));
}

/** An event that the gate refuses in place of ClickHouse. */
export function poisonEvent(producer: Producer): SentEvent {
  return ofOwnUser(producer, { poison: '1' });
}

/** An event of a user who has no other events, and so is below every limit. */
export function ofOwnUser(producer: Producer, more: Record<string, string> = {}): SentEvent {
  const { user_id: _, ...event } = producer.nextEvent();
  const { marker } = event.properties;
  return { ...event, identity: `${marker}@example.com`, properties: { ...event.properties, ...more } };
}
