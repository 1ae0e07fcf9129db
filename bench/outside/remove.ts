// Deletes the users of a run in every account to which the run sent, by the library for servers.

import { createSluice, type UserToDelete } from '../../src/libraries/producer/index.js';
import { basic, deletionPaths } from '../../test/harness/deletion.js';
import { BenchError } from '../failure.js';
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
  const ask = async (path: string, method: string, authorization: string) => {
    const reply = await fetch(`${url}${path}`, { method, headers: { authorization } });
    if (!reply.ok) throw new BenchError(`${path} was answered ${reply.status}: ${await reply.text()}`);
    return (await reply.json()) as Record<string, unknown>;
  };
  let rows = 0;
  for (const { appId, apiKey } of apiKeys) {
    const sluice = createSluice({ appId, baseUrl: url, apiKey });
    try {
      const signal = AbortSignal.timeout(completeMsMax);
      const { requests } = await sluice.deleteUsers(users, { signal }).done();
      const { access_token: token } = await ask(deletionPaths.token, 'POST', basic(appId, apiKey));
      for (const { id } of requests) {
        const { rows_deleted: deleted } = await ask(deletionPaths.status(id), 'GET', `Bearer ${token}`);
        rows += Number(deleted);
      }
    } finally {
      await sluice.close();
    }
  }
  return rows;
}
