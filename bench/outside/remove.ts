// Deletes the users of a run in every account to which the run sent, by the library for servers.

import { createDeletionApi, createSluice, type UserToDelete } from '../../src/libraries/producer/index.js';
import { numbersEach } from '../load/bodies.js';
import type { Sent } from '../load/threads.js';
import type { Way } from '../throughput/ways.js';
import type { OutsideOptions } from './options.js';

const completeMsMax = 30 * 60_000;

/**
 * The users that the records of a run name, in this many environments. Names only identities, which have the run's prefix: their devices
 * are deleted with them, and a device's user_id could occur in another run.
 */
export function usersOf(way: Pick<Way, 'path' | 'records' | 'user'>, sent: Sent, environments: number) {
  return sent.flatMap(({ keyPrefix, requests }) => {
    const numbers = Math.ceil(requests / environments) * numbersEach(way);
    return Array.from({ length: numbers }, (_, number) => ({ identity: way.user(number, keyPrefix) }));
  });
}

/** The users that records name, each once. */
export function namesIn(records: readonly object[]): UserToDelete[] {
  const users = new Map<string, UserToDelete>();
  for (const { identity, user_id: userId } of records as readonly Readonly<Record<string, unknown>>[]) {
    if (typeof identity === 'string') users.set(`i${identity}`, { identity });
    if (typeof userId === 'string' || typeof userId === 'number') users.set(`u${userId}`, { userId });
  }
  return [...users.values()];
}

/** Settles with the number of deleted rows when all deletions are complete. Rejects with the API's refusal. */
export async function removeUsers(
  { url, apiKeys }: Pick<OutsideOptions, 'url' | 'apiKeys'>,
  users: readonly UserToDelete[],
): Promise<number> {
  let rows = 0;
  for (const account of apiKeys) {
    const options = { ...account, baseUrl: url };
    const [sluice, api] = [createSluice(options), createDeletionApi(options)];
    try {
      const signal = AbortSignal.timeout(completeMsMax);
      const { requests } = await sluice.deleteUsers(users, { signal }).done();
      for (const { id } of requests)
        rows += Number((await api.readDeletionStatus({ deletion_request_id: id })).rows_deleted);
    } finally {
      api.close();
      await sluice.close();
    }
  }
  return rows;
}
