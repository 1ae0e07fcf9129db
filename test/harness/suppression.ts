// Suppresses users in tests: calls to the endpoint of suppressed users.

import assert from 'node:assert/strict';
import { callWithToken, type NamedUser, type Reply } from './deletion.js';
import { until } from './wait.js';

export const suppressionPath = '/api/public/v0/user_suppression';

/** Sends a submission; settles with any answer. A `body` that is text is sent as it is. */
export function submitSuppression(baseUrl: string, token: string, body: object | string): Promise<Reply> {
  return callWithToken({ baseUrl }, token, suppressionPath, body);
}

/** Suppresses or frees users; settles when the API has confirmed it. A busy API may answer 503; then asks again. */
export async function setSuppressed(
  baseUrl: string,
  token: string,
  users: readonly NamedUser[],
  suppress: boolean,
): Promise<void> {
  await until(
    async () => {
      const reply = await submitSuppression(baseUrl, token, { users, suppress });
      if (reply.status !== 503) assert.equal(reply.status, 200, reply.text);
      return reply.status === 200;
    },
    { what: 'the suppression is answered', everyMs: 200 },
  );
}

/** Asks for the suppression of a user, or without a query for all; settles with any answer. */
export function lookUp(baseUrl: string, token: string, query = ''): Promise<Reply> {
  return callWithToken({ baseUrl }, token, `${suppressionPath}${query}`);
}

/** Looks users up by POST; settles with any answer. */
export function askAll(baseUrl: string, token: string, users: readonly NamedUser[]): Promise<Reply> {
  return callWithToken({ baseUrl }, token, `${suppressionPath}/lookup`, { users });
}

/** Looks users up by POST; settles with whether each is suppressed. */
export async function lookUpAll(
  baseUrl: string,
  token: string,
  users: readonly NamedUser[],
): Promise<boolean[]> {
  const reply = await askAll(baseUrl, token, users);
  assert.equal(reply.status, 200, reply.text);
  return (JSON.parse(reply.text) as { users: { suppressed: boolean }[] }).users.map(
    ({ suppressed }) => suppressed,
  );
}
