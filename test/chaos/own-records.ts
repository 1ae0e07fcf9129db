// Records about users that no other client names. Each record is repeated until it is acknowledged, and only then the next step begins, so
// their order is known exactly whatever the timing.

import type { Endpoint, SentEvent } from '../harness/endpoints.js';
import type { Producer } from '../harness/load.js';
import { hold } from './fault.js';
import type { Random } from './random.js';

type User = { readonly identity: string } | { readonly user_id: string };

export type OwnRecords = {
  /** Sends an event of a user; settles with its marker once it is acknowledged. */
  see(user: User): Promise<string>;
  /** Sends an identification; settles with its marker once it is acknowledged. */
  identify(userId: string, identity: string): Promise<string>;
};

const attemptsMax = 5;
/** Pause before a record is sent again. */
const pauseMs = 100;

/** `name` is part of the markers. Both functions reject when a record is not acknowledged, or no longer wanted. */
export function createOwnRecords(
  producer: Producer,
  targets: readonly string[],
  random: Random,
  name: string,
  isWanted: () => boolean,
): OwnRecords {
  let records = 0;

  async function keep(endpoint: Endpoint, record: Omit<SentEvent, 'properties'>, marker: string) {
    const event: SentEvent = { ...record, properties: { marker } };
    for (let left = attemptsMax; left > 0 && isWanted(); left -= 1) {
      const { outcome } = await producer.sendTo(endpoint, random.pick(targets), [event]);
      if (outcome === 'acknowledged') return marker;
      await hold(pauseMs);
    }
    throw new Error(`${marker} was not acknowledged`);
  }

  return {
    see: (user) => {
      records += 1;
      const marker = `${producer.mark}-${name}-${records}`;
      return keep('track', { event: 'Seen', ...user, idempotency_key: marker }, marker);
    },
    // A message of the client library has a key, so it may be repeated until it is acknowledged.
    identify: (user_id, identity) =>
      keep('collect', { kind: 'identify', event: '', user_id, identity }, `${user_id} is ${identity}`),
  };
}
