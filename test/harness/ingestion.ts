// Sends records to the API in tests, waits until ClickHouse has everything that was accepted, and reads the views.

import { Redis } from '../../src/packages/ioredis.js';
import { shardKeys } from '../../src/redis/keys.js';
import type { Deployment } from './services.js';
import { until } from './wait.js';

export const paths = {
  track: '/api/track',
  userProperties: '/api/add_user_properties',
  identify: '/api/v1/identify',
} as const;

export type Answer = {
  readonly status: number;
  readonly text: string;
  /** The code of `err`, if the answer has one. */
  readonly code?: string;
  readonly field?: string;
  readonly headers: Headers;
};

/** Posts a body: text as it is, all else as JSON. Settles with any answer. */
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

/** Posts until a busy machine has time: after the answer overloaded, nothing is stored or counted. Settles with any other answer. */
export function postInTime(baseUrl: string, path: string, body: object | string): Promise<Answer> {
  return until(
    async () => {
      const answer = await post(baseUrl, path, body);
      return answer.code !== 'overloaded' && answer;
    },
    { what: 'the service has time', everyMs: 500 },
  );
}

/** Whether everything in a request was accepted. */
export function isAccepted({ status, text }: Answer): boolean {
  return status === 200 && text === '{}';
}

/** Settles when ClickHouse has everything that the API has accepted so far, even if more is sent meanwhile. */
export async function untilStored(sluice: Deployment, deadlineMs = 120_000): Promise<void> {
  const redis = new Redis(sluice.redisUrl);
  try {
    for (let shard = 0; shard < Number(sluice.env.SHARDS ?? 1); shard += 1) {
      const segments = shardKeys.segments(shard);
      const outstanding = await redis.zrange(segments, '0', '-1');
      if (outstanding.length === 0) continue;
      await until(
        async () => (await redis.zmscore(segments, ...outstanding)).every((score) => score === null),
        { deadlineMs, what: 'the outstanding segments are stored' },
      );
    }
  } finally {
    redis.disconnect();
  }
}

export type StoredUser = {
  readonly identity: string;
  /** Decimal digits, in ascending numerical order. */
  readonly user_ids: readonly string[];
  readonly email: string;
  readonly properties: Readonly<Record<string, string>>;
};

export function readUsers(sluice: Deployment, appId: string): Promise<StoredUser[]> {
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
export function readUserEvents(sluice: Deployment, appId: string): Promise<UserEvent[]> {
  return sluice.rows<UserEvent>(`SELECT event, identity, toString(user_id) AS user_id, user_properties
    FROM user_events WHERE app_id = '${appId}' ORDER BY event`);
}
