// Write keys: an environment that requires them takes records on the endpoints for servers only from callers with a key. It may have several,
// so that they can be replaced one after another. Every function settles when the change is in Redis.

import type { AdministrationAnswers } from '../contract/administration-answers.js';
import { AdministrationError } from '../contract/errors.js';
import type { Redis } from '../redis/client.js';
import type { EnvironmentKeys, Key } from '../registry/documents.js';
import {
  type Change,
  changeRegistry,
  environmentNamed,
  type RegistrySnapshot,
  readRegistry,
} from '../registry/registry.js';
import { checkNewKey, type KeyForm, newKey } from '../registry/secrets.js';
import { checkSize } from './accounts.js';

const form: KeyForm = { secret: 'slw_', id: 'wk_' };

type WriteKeyView = AdministrationAnswers['listWriteKeys'][number];

/** Creates a write key; only this call returns the key itself. */
export async function createWriteKey(
  redis: Redis,
  appId: string,
  name: string,
): Promise<AdministrationAnswers['createWriteKey']> {
  const { key, secret } = newKey(form, name);
  return changeRegistry(redis, (snapshot) => {
    const { account_id } = environmentNamed(snapshot, appId);
    const existing = keysOf(snapshot, appId);
    checkNewKey(name, existing);
    const changes = [change(appId, [...existing, key])];
    checkSize(snapshot, account_id, changes);
    return {
      changes,
      result: { id: key.id, app_id: appId, name, write_key: secret },
    };
  });
}

/** The write keys of an environment, the oldest first; never the keys themselves. */
export async function listWriteKeys(redis: Redis, appId: string): Promise<WriteKeyView[]> {
  const snapshot = await readRegistry(redis);
  environmentNamed(snapshot, appId);
  return keysOf(snapshot, appId).map(({ id, name, created_at }) => ({ id, app_id: appId, name, created_at }));
}

/**
 * Ends a write key: API processes refuse it within a second. Even the last one of an environment that requires keys can be ended, since it
 * may have fallen into the wrong hands.
 */
export async function revokeWriteKey(
  redis: Redis,
  appId: string,
  id: string,
): Promise<AdministrationAnswers['revokeWriteKey']> {
  return changeRegistry(redis, (snapshot) => {
    const { write_key } = environmentNamed(snapshot, appId);
    const existing = keysOf(snapshot, appId);
    const left = existing.filter((key) => key.id !== id);
    if (left.length === existing.length) throw new AdministrationError(`${appId} has no write key ${id}`);
    const closes = left.length === 0 && write_key === 'required';
    const note = closes ? { note: noneLeft } : {};
    const result = { app_id: appId, id, revoked: true, keys_left: left.length, ...note };
    return { changes: [change(appId, left)], result };
  });
}

const noneLeft =
  'no write key is left, and the environment requires one: all servers are refused until there is one again';

function keysOf({ writeKeys }: RegistrySnapshot, appId: string): readonly Key[] {
  return writeKeys.get(appId)?.keys ?? [];
}

function change(appId: string, keys: readonly Key[]): Change {
  const document: EnvironmentKeys = { app_id: appId, keys };
  return { key: `write_keys:${appId}`, document: keys.length === 0 ? undefined : document };
}
