// The records of a load: events as backend producers send them, about 230 bytes each with the envelope, user properties, identifications,
// and requests of the client library. They are made before any clock starts.

/** So many that no user reaches a rate limit while fewer events per second are sent than there are users. */
const users = 200_000;
const currencies = ['EUR', 'USD', 'GBP', 'JPY'];
const plans = ['free', 'pro', 'team'];
const firstMs = 1_750_000_000_000;

/**
 * Makes the body of the request with this number, without the app_id. With a prefix, records have unique keys; with `names`, they have
 * users that no other load has.
 */
export type MakeRequest = (number: number, keyPrefix?: string, names?: string) => object;

/** The identity of the user of record `number`. */
export function userOf(number: number, names?: string): string {
  const own = names === undefined ? '' : `-${names}`;
  return `user-${String(number % users).padStart(6, '0')}${own}@example.com`;
}

/** One event. With a prefix it has an idempotency key. */
export function eventOf(number: number, keyPrefix?: string, names?: string) {
  return {
    event: 'Order Completed',
    identity: userOf(number, names),
    timestamp: new Date(firstMs + (number % 86_400_000)).toISOString(),
    properties: {
      order_id: `order-${String(number).padStart(9, '0')}`,
      amount: (number % 100_000) / 100,
      currency: currencies[number % currencies.length] as string,
      items: 1 + (number % 7),
    },
    ...(keyPrefix === undefined ? {} : { idempotency_key: `${keyPrefix}-${number}` }),
  };
}

/** Bulk requests of this many events each; `number` is the first of them. */
export function bulkOf(events: number): MakeRequest {
  return (number, keyPrefix, names) => ({
    events: Array.from({ length: events }, (_, index) => eventOf(number + index, keyPrefix, names)),
  });
}

/** Three properties of a user. */
export const userPropertiesOf: MakeRequest = (number, _, names) => ({
  identity: userOf(number, names),
  properties: { email: userOf(number, names), plan: plans[number % plans.length], seats: 1 + (number % 50) },
});

/** The identification of an anonymous user; no user occurs twice. */
export const identifyOf: MakeRequest = (number, keyPrefix) => {
  const { identity, userId } = newUserOf(number, keyPrefix);
  return { user_id: userId, identity };
};

/** The records in one request of the client library. */
export const collected = { events: 18, user_properties: 1, user_identities: 1 } as const;

/** The request of a device: events, one identification, and user properties. */
export const collectOf: MakeRequest = (number, keyPrefix) => {
  const sentAt = new Date(firstMs + number * 1000);
  const { identity, userId } = newUserOf(number, keyPrefix);
  const message = (index: number, fields: object) => ({
    id: `${keyPrefix}-${number}-${index}`,
    user_id: userId,
    session_id: `session-${keyPrefix}-${number}`,
    time: new Date(sentAt.getTime() - 5000 + index * 100).toISOString(),
    ...fields,
  });
  const messages = Array.from({ length: collected.events }, (_, index) => {
    const properties = { path: `/products/${(number + index) % 5000}`, referrer: 'search', width: 1280 };
    return message(index, { type: 'event', event: 'Page View', properties });
  });
  messages.push(message(18, { type: 'identify', identity }));
  messages.push(message(19, { type: 'user_properties', identity, properties: { plan: 'pro' } }));
  return { sent_at: sentAt.toISOString(), messages };
};

/** A user with a device. The identity is unique over all numbers and runs, but the user_id of the device may occur in another run. */
export function newUserOf(number: number, keyPrefix = ''): { identity: string; userId: string } {
  let hash = 0;
  for (const character of keyPrefix) hash = (hash * 31 + character.charCodeAt(0)) % 1_000_003;
  return { identity: `${keyPrefix}-${number}@example.com`, userId: String(hash * 4_000_000_000 + number) };
}

/** A batch of this many events as Segment's library for Node sends it. Every message has an id, which is its key. */
export function segmentBatchOf(events: number): MakeRequest {
  const context = { library: { name: '@segment/analytics-node', version: '3.1.0' } };
  return (number, keyPrefix, names) => ({
    batch: Array.from({ length: events }, (_, index) => {
      const { event, identity, timestamp, properties } = eventOf(number + index, undefined, names);
      const messageId = `node-next-${timestamp}-${keyPrefix}-${number + index}`;
      return {
        type: 'track',
        event,
        userId: identity,
        timestamp,
        properties,
        context,
        integrations: {},
        messageId,
      };
    }),
    sentAt: new Date(firstMs + number).toISOString(),
  });
}
