// Sending records to the API in tests: one request and its answer, environments with settings of their own,
// and waiting until ClickHouse has everything that was accepted.

import { Redis } from 'ioredis';
import { shardKeys } from '../../src/redis/keys.js';
import type { SluiceHandle } from './services.js';
import { until } from './wait.js';

export const paths = {
  track: '/api/track',
  userProperties: '/api/add_user_properties',
  identify: '/api/v1/identify',
} as const;

export type Answer = {
  readonly status: number;
  readonly text: string;
  /** Of `err`, when the answer has one. */
  readonly code?: string;
  readonly field?: string;
  readonly headers: Headers;
};

/** Posts a body, as JSON unless it is text already; settles with the answer, whatever it says. */
export async function post(baseUrl: string, path: string, body: object | string): Promise<Answer> {
  const reply = await fetch(`${baseUrl}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
    signal: AbortSignal.timeout(20_000),
  });
  const text = await reply.text();
  const { err } = JSON.parse(text) as { err?: { code?: string; field?: string } };
  return {
    status: reply.status,
    text,
    headers: reply.headers,
    ...(err?.code === undefined ? {} : { code: err.code }),
    ...(err?.field === undefined ? {} : { field: err.field }),
  };
}

/** What `post` settles with when everything of a request was accepted. */
export function isAccepted({ status, text }: Answer): boolean {
  return status === 200 && text === '{}';
}

/**
 * Adds an account with one environment for each list of options of `environments set`, and starts the API
 * processes again, so that all of them know the settings. Settles with the app_ids.
 */
export async function createEnvironments(
  sluice: SluiceHandle,
  settings: readonly (readonly string[])[],
): Promise<string[]> {
  const names = settings.flatMap((_, index) => ['--environment', `Environment ${index + 1}`]);
  const account = (await sluice.admin('accounts', 'create', 'Tests', ...names)) as {
    environments: { app_id: string }[];
  };
  const appIds = account.environments.map(({ app_id }) => app_id);
  for (const [index, options] of settings.entries()) {
    if (options.length > 0) await sluice.admin('environments', 'set', appIds[index] ?? '', ...options);
  }
  await Promise.all(sluice.api.map((api) => api.restart()));
  return appIds;
}

/** Adds a strict and a lenient environment, both without limits, as `createEnvironments` does. */
export async function createBothEnvironments(
  sluice: SluiceHandle,
): Promise<[strict: string, lenient: string]> {
  const unlimited = ['track', 'user_properties', 'bulk_identity', 'bulk_app'].flatMap((name) => [
    '--limit',
    `${name}=none`,
  ]);
  const settings = [unlimited, [...unlimited, '--validation', 'lenient']];
  const [strict = '', lenient = ''] = await createEnvironments(sluice, settings);
  return [strict, lenient];
}

/** Settles when ClickHouse has everything that the API accepted until now, whatever is sent meanwhile. */
export async function untilStored(sluice: SluiceHandle, deadlineMs = 60_000): Promise<void> {
  const redis = new Redis(sluice.redisUrl);
  try {
    const outstanding = await redis.zrange(shardKeys.segments(0), '0', '-1');
    if (outstanding.length === 0) return;
    await until(
      async () =>
        (await redis.zmscore(shardKeys.segments(0), ...outstanding)).every((score) => score === null),
      { deadlineMs, what: 'the outstanding segments are stored' },
    );
  } finally {
    redis.disconnect();
  }
}

export type StoredUser = {
  readonly identity: string;
  /** In decimal, ascending as numbers. */
  readonly user_ids: readonly string[];
  readonly email: string;
  readonly properties: Readonly<Record<string, string>>;
};

/** All users of an environment, as the view `users` shows them. */
export function readUsers(sluice: SluiceHandle, appId: string): Promise<StoredUser[]> {
  return sluice.rows<StoredUser>(`SELECT
      identity, arrayMap(id -> toString(id), user_ids) AS user_ids, email, properties
    FROM users WHERE app_id = '${appId}' ORDER BY identity, user_ids`);
}

export type UserEvent = {
  readonly event: string;
  readonly identity: string;
  readonly user_id: string | null;
  readonly user_properties: Readonly<Record<string, string>>;
};

/** All events of an environment with their merged users, as the view `user_events` shows them. */
export function readUserEvents(sluice: SluiceHandle, appId: string): Promise<UserEvent[]> {
  return sluice.rows<UserEvent>(`SELECT event, identity, toString(user_id) AS user_id, user_properties
    FROM user_events WHERE app_id = '${appId}' ORDER BY event`);
}
