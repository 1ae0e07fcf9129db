// Where an account wants to be called when one of its deletions is complete: an address, and the secret that proves that a call is genuine.
// Every function settles when the change is in Redis.

import type { AdministrationAnswers } from '../contract/administration-answers.js';
import { AdministrationError } from '../contract/errors.js';
import { callbacks } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import type { Callback } from '../registry/documents.js';
import { accountNamed, changeRegistry, readDocument, readRegistry } from '../registry/registry.js';
import { newSecret } from '../registry/secrets.js';

type CallbackView = AdministrationAnswers['showCallback'];

/** Sets the address and makes a new secret; only this call returns it. `isForbidden`: whether calls to the URL would be refused. */
export async function setCallback(
  redis: Redis,
  accountId: string,
  url: string,
  isForbidden: (url: string) => Promise<boolean>,
): Promise<CallbackView & { readonly secret: string }> {
  checkUrl(url);
  if (await isForbidden(url))
    throw new AdministrationError(
      'the URL leads to an address that callbacks may not reach: use a public one, or ask an operator to allow it with CALLBACK_ALLOW',
    );
  const secret = newSecret('slc_');
  const document: Callback = { account_id: accountId, url, secret, created_at: new Date().toISOString() };
  return changeRegistry(redis, (snapshot) => {
    accountNamed(snapshot, accountId);
    return {
      changes: [{ key: `callback:${accountId}`, document }],
      result: { account_id: accountId, url, secret },
    };
  });
}

/** From now on the account is not called. */
export async function removeCallback(redis: Redis, accountId: string): Promise<CallbackView> {
  return changeRegistry(redis, (snapshot) => {
    accountNamed(snapshot, accountId);
    return {
      changes: [{ key: `callback:${accountId}`, document: undefined }],
      result: { account_id: accountId, url: null },
    };
  });
}

/** The address; never the secret. */
export async function showCallback(redis: Redis, accountId: string): Promise<CallbackView> {
  accountNamed(await readRegistry(redis), accountId);
  return { account_id: accountId, url: (await readCallback(redis, accountId))?.url ?? null };
}

/** The callback of an account; undefined if it has none. Throws StateNotLoaded when Redis was emptied. */
export function readCallback(redis: Redis, accountId: string): Promise<Callback | undefined> {
  return readDocument(redis, `callback:${accountId}`);
}

function checkUrl(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPossible =
    url !== undefined &&
    text.length <= callbacks.urlMax &&
    ['http:', 'https:'].includes(url.protocol) &&
    url.username === '' &&
    url.password === '' &&
    url.hash === '';
  if (isPossible) return;
  // The message does not repeat the URL, which may hold a secret.
  throw new AdministrationError(
    `the URL must begin with https:// or http://, must not have a password or a fragment, and must have at most ${callbacks.urlMax} characters`,
  );
}
