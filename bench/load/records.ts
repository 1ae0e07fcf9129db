// Further inputs: records other than events, what the client library sends, and a mixture as producers send it, with
// repeats and with users above their limit.

import { type EventOptions, eventOf, userOf } from './events.js';

const plans = ['free', 'pro', 'team'];

/** One request per user, with three properties. */
export function userPropertyBodies(count: number, { appId, first }: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) => {
    const number = first + i;
    const properties = {
      email: userOf(number),
      plan: plans[number % plans.length],
      seats: 1 + (number % 50),
    };
    return Buffer.from(JSON.stringify({ app_id: appId, identity: userOf(number), properties }));
  });
}

/** One request per anonymous user, each a different one. */
export function identifyBodies(count: number, { appId, first, keyPrefix }: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) => {
    const number = first + i;
    const identity = `${keyPrefix}-${number}@example.com`;
    return Buffer.from(
      JSON.stringify({ app_id: appId, user_id: String(deviceOf(keyPrefix, number)), identity }),
    );
  });
}

/** What one request of the client library carries here. */
export const collected = { events: 18, user_properties: 1, user_identities: 1 } as const;

/** One request of the client library per device: events, one identification, and user properties. */
export function collectBodies(count: number, { appId, first, keyPrefix }: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) => {
    const number = first + i;
    const sentAt = new Date(1_750_000_000_000 + number * 1000);
    const common = {
      user_id: String(deviceOf(keyPrefix, number)),
      session_id: `session-${keyPrefix}-${number}`,
    };
    const message = (index: number, fields: object) => ({
      id: `${keyPrefix}-${number}-${index}`,
      ...common,
      time: new Date(sentAt.getTime() - 5000 + index * 100).toISOString(),
      ...fields,
    });
    const messages = Array.from({ length: collected.events }, (_, index) =>
      message(index, {
        type: 'event',
        event: 'Page View',
        properties: { path: `/products/${(number + index) % 5000}`, referrer: 'search', width: 1280 },
      }),
    );
    const identity = `${keyPrefix}-${number}@example.com`;
    messages.push(message(18, { type: 'identify', identity }));
    messages.push(message(19, { type: 'user_properties', identity, properties: { plan: 'pro' } }));
    return Buffer.from(JSON.stringify({ app_id: appId, sent_at: sentAt.toISOString(), messages }));
  });
}

/** One request of the mixture. */
export type MixedRequest = {
  readonly body: Buffer;
  /** The same for requests of which at most one may be stored. */
  readonly key: string;
};

const hotUsers = 5;
const mixture = { repeats: 15, hot: 5 };

/**
 * Single events with keys. Of a hundred, 15 repeat an earlier one of the same list, and 5 come from a few users who send
 * far more than their limit allows.
 */
export function mixedRequests(count: number, { appId, first, keyPrefix }: EventOptions): MixedRequest[] {
  const requests: MixedRequest[] = [];
  for (let i = 0; i < count; i++) {
    // In mixed order, so that short lists also contain everything.
    const kind = (i * 37) % 100;
    const earlier = requests[i - 7];
    if (kind >= 100 - mixture.repeats && earlier !== undefined) {
      requests.push(earlier);
      continue;
    }
    const number = first + i;
    const hot = kind < mixture.hot ? { identity: `hot-${number % hotUsers}@example.com` } : {};
    const event = { app_id: appId, ...eventOf(number, { keyPrefix }), ...hot };
    requests.push({ body: Buffer.from(JSON.stringify(event)), key: `${keyPrefix}-${number}` });
  }
  return requests;
}

/** A user_id that is unique over all numbers and runs. */
function deviceOf(keyPrefix: string | undefined, number: number): number {
  let hash = 0;
  for (const character of keyPrefix ?? '') hash = (hash * 31 + character.charCodeAt(0)) % 1_000_003;
  return hash * 4_000_000_000 + number;
}
