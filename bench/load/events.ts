// The events of a load, as backend producers send them: about 230 bytes each with the envelope, from one of many users. All
// bodies are built before any clock starts.

export type EventOptions = {
  readonly appId: string;
  /** Number of the first event; the next ones count up. The user is the number modulo the number of users. */
  readonly first: number;
  /** If given, every event has an idempotency key: this prefix and its number. */
  readonly keyPrefix?: string | undefined;
};

/** So many that no user reaches a rate limit while fewer events per second are sent than there are users. */
const users = 200_000;
const currencies = ['EUR', 'USD', 'GBP', 'JPY'];

/** Requests of one event each. */
export function singleBodies(count: number, options: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) =>
    Buffer.from(JSON.stringify({ app_id: options.appId, ...eventOf(options.first + i, options) })),
  );
}

/** Bulk requests of `eventsEach` events each. */
export function bulkBodies(count: number, eventsEach: number, options: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) => {
    const first = options.first + i * eventsEach;
    const events = Array.from({ length: eventsEach }, (_, j) => eventOf(first + j, options));
    return Buffer.from(JSON.stringify({ app_id: options.appId, events }));
  });
}

/** The identity of the user of record `number`. */
export function userOf(number: number): string {
  return `user-${String(number % users).padStart(6, '0')}@example.com`;
}

type MadeEvent = {
  readonly event: string;
  readonly identity: string;
  readonly timestamp: string;
  readonly properties: Record<string, string | number>;
  readonly idempotency_key?: string;
};

/** One event without the app_id. */
export function eventOf(number: number, { keyPrefix }: Pick<EventOptions, 'keyPrefix'>): MadeEvent {
  return {
    event: 'Order Completed',
    identity: userOf(number),
    timestamp: new Date(1_750_000_000_000 + (number % 86_400_000)).toISOString(),
    properties: {
      order_id: `order-${String(number).padStart(9, '0')}`,
      amount: (number % 100_000) / 100,
      currency: currencies[number % currencies.length] as string,
      items: 1 + (number % 7),
    },
    ...(keyPrefix === undefined ? {} : { idempotency_key: `${keyPrefix}-${number}` }),
  };
}
