// Deletes the users of a run, as a producer does: by the library for servers.

import { createSluice, type UserToDelete } from '../../src/producer/index.js';
import { userOf } from '../load/events.js';

export type Removal = { readonly url: string; readonly appId: string; readonly apiKey: string };

/** The made events are from so many users at most. */
const madeUsersMax = 200_000;
const completeMsMax = 30 * 60_000;

/** The users of made events: the first `events` of them. */
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

/** Settles with how many deletion requests it took, when all are complete. Rejects with what the API refuses. */
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
