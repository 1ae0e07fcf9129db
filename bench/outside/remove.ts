// Deletes the users of a run with the library for servers, as a producer would.

import { createSluice, type UserToDelete } from '../../src/producer/index.js';
import { userOf } from '../load/events.js';

type Removal = { readonly url: string; readonly appId: string; readonly apiKey: string };

/** Made events have at most so many users. */
const madeUsersMax = 200_000;
const completeMsMax = 30 * 60_000;

/** The users of the first `events` made events. */
export function madeUsers(events: number): UserToDelete[] {
  return Array.from({ length: Math.min(events, madeUsersMax) }, (_, i) => ({ identity: userOf(i) }));
}

/** The users that records name. */
export function usersIn(records: readonly object[]): UserToDelete[] {
  const users = new Map<string, UserToDelete>();
  for (const { identity, user_id } of records as readonly { identity?: unknown; user_id?: unknown }[]) {
    if (typeof identity === 'string') users.set(`i${identity}`, { identity });
    if (typeof user_id === 'string') users.set(`u${user_id}`, { userId: user_id });
  }
  return [...users.values()];
}

/** Settles with the number of deletion requests when all are complete. Rejects with the API's refusal. */
export async function removeUsers(
  { url, appId, apiKey }: Removal,
  users: readonly UserToDelete[],
): Promise<number> {
  const sluice = createSluice({ appId, baseUrl: url, apiKey });
  try {
    const signal = AbortSignal.timeout(completeMsMax);
    const { requests } = await sluice.deleteUsers(users, { signal }).done();
    return requests.length;
  } finally {
    await sluice.close();
  }
}
