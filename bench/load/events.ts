// The inputs: request bodies that are built before any clock starts. An event as backend producers send it, about 230
// bytes with its envelope, from one of many users.

export type EventOptions = {
  readonly appId: string;
  /** Number of the first event. The following ones count up, modulo the number of users. */
  readonly first: number;
  /** If given, every event carries an idempotency key: this prefix and its number. */
  readonly keyPrefix?: string | undefined;
};

/** No user reaches a rate limit as long as fewer events per second are sent than there are users. */
const users = 200_000;
const currencies = ['EUR', 'USD', 'GBP', 'JPY'];

/** One request per event. */
export function singleBodies(count: number, options: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) =>
    Buffer.from(JSON.stringify({ app_id: options.appId, ...eventOf(options.first + i, options) })),
  );
}

/** Bulk requests of this many events each. */
export function bulkBodies(count: number, eventsEach: number, options: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) => {
    const first = options.first + i * eventsEach;
    const events = Array.from({ length: eventsEach }, (_, j) => eventOf(first + j, options));
    return Buffer.from(JSON.stringify({ app_id: options.appId, events }));
  });
}

/** The identity of the user of an event or another record. */
export function userOf(number: number): string {
  return `user-${String(number % users).padStart(6, '0')}@example.com`;
}

export type MadeEvent = {
  readonly event: string;
  readonly identity: string;
  readonly timestamp: string;
  readonly properties: Record<string, string | number>;
  readonly idempotency_key?: string;
};

/** The fields of one event, without the app_id. */
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
