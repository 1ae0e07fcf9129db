// The other records of a load: user properties, identifications, and requests of the client library.

import { type EventOptions, userOf } from './events.js';

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

/** One request per anonymous user; no user occurs twice. */
export function identifyBodies(count: number, { appId, first, keyPrefix }: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) => {
    const { identity, userId: user_id } = newUserOf(first + i, keyPrefix);
    return Buffer.from(JSON.stringify({ app_id: appId, user_id, identity }));
  });
}

/** The records in one request of the client library. */
export const collected = { events: 18, user_properties: 1, user_identities: 1 } as const;

/** One request per device: events, one identification, and user properties. */
export function collectBodies(count: number, { appId, first, keyPrefix }: EventOptions): Buffer[] {
  return Array.from({ length: count }, (_, i) => {
    const number = first + i;
    const sentAt = new Date(1_750_000_000_000 + number * 1000);
    const { identity, userId } = newUserOf(number, keyPrefix);
    const common = { user_id: userId, session_id: `session-${keyPrefix}-${number}` };
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
    messages.push(message(18, { type: 'identify', identity }));
    messages.push(message(19, { type: 'user_properties', identity, properties: { plan: 'pro' } }));
    return Buffer.from(JSON.stringify({ app_id: appId, sent_at: sentAt.toISOString(), messages }));
  });
}

/** A user with a device, whom no other number or run has. */
export function newUserOf(number: number, keyPrefix = ''): { identity: string; userId: string } {
  let hash = 0;
  for (const character of keyPrefix) hash = (hash * 31 + character.charCodeAt(0)) % 1_000_003;
  return { identity: `${keyPrefix}-${number}@example.com`, userId: String(hash * 4_000_000_000 + number) };
}
