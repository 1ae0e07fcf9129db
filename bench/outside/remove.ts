// Deletes the users of a run with the library for servers, as a producer would, in every account that was loaded.

import { createSluice, type UserToDelete } from '../../src/producer/index.js';
import { BenchError } from '../failure.js';
import { numbersEach } from '../load/bodies.js';
import type { LoadResult } from '../load/threads.js';
import type { Way } from '../throughput/ways.js';
import type { OutsideOptions } from './options.js';

const completeMsMax = 30 * 60_000;

/** The users of what was sent to so many environments, each once. */
export function usersOf(
  way: Pick<Way, 'path' | 'records' | 'user'>,
  sent: LoadResult['sent'],
  environments: number,
): UserToDelete[] {
  return namesIn(
    sent.flatMap(({ keyPrefix, requests }) => {
      const numbers = Math.ceil(requests / environments) * numbersEach(way);
      return Array.from({ length: numbers }, (_, number) => {
        const { identity, userId } = way.user(number, keyPrefix);
        return { identity, user_id: userId };
      });
    }),
  );
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
  for (const { appId, apiKey } of apiKeys) {
    const sluice = createSluice({ appId, baseUrl: url, apiKey });
    try {
      const signal = AbortSignal.timeout(completeMsMax);
      const { requests } = await sluice.deleteUsers(users, { signal }).done();
      const credentials = Buffer.from(`${appId}:${apiKey}`).toString('base64');
      const base = `${url}/api/public/v0`;
      const { access_token: token } = await ask(`${base}/auth_token`, 'POST', `Basic ${credentials}`);
      for (const { id } of requests) {
        const status = await ask(`${base}/deletion_status/${id}`, 'GET', `Bearer ${token}`);
        rows += Number(status.rows_deleted);
      }
    } finally {
      await sluice.close();
    }
  }
  return rows;
}

async function ask(url: string, method: string, authorization: string): Promise<Record<string, unknown>> {
  const reply = await fetch(url, { method, headers: { authorization } });
  if (!reply.ok) throw new BenchError(`${url} was answered ${reply.status}: ${await reply.text()}`);
  return (await reply.json()) as Record<string, unknown>;
}
