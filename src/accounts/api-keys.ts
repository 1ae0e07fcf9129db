// API keys, for which the deletion API issues tokens. An environment may have several, each with a name, and a replaced one may stay valid
// for a while, so that its callers can switch without a pause. Every function settles when the change is in Redis.

import type { AdministrationAnswers } from '../contract/administration-answers.js';
import { AdministrationError } from '../contract/errors.js';
import { administration } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import type { DocumentKey, EnvironmentKeys, Key, KeyUse } from '../registry/documents.js';
import {
  type Change,
  changeRegistry,
  environmentNamed,
  type RegistrySnapshot,
  readRegistry,
  readTime,
} from '../registry/registry.js';
import { checkNewKey, type KeyForm, newKey } from '../registry/secrets.js';
import { checkSize } from './accounts.js';

const form: KeyForm = { secret: 'slk_', id: 'ak_' };

type CreatedApiKey = AdministrationAnswers['createKey'];

type ApiKeyView = AdministrationAnswers['listKeys'][number];

/** Creates an API key: the environment's only one, or a further one with a name of its own. Only this call returns the key. */
export async function createApiKey(redis: Redis, appId: string, name = ''): Promise<CreatedApiKey> {
  return addApiKey(redis, appId, (live) => {
    if (name === '' && live.length > 0)
      throw new AdministrationError(`${appId} has an API key; use keys rotate, or give the new one a name`);
    if (live.some((key) => key.name === name && key.expires_at === undefined))
      throw new AdministrationError(`${appId} has an API key with this name; use keys rotate`);
    return { name, kept: live };
  });
}

export type Rotation = {
  /** Replaces only the key with this name. */
  readonly name?: string | undefined;
  /** How long the replaced keys stay valid; undefined: they and their tokens end at once. */
  readonly overlapMs?: number | undefined;
};

/** Replaces the environment's API keys, or the one with a name, by a new one. */
export async function rotateApiKey(
  redis: Redis,
  appId: string,
  rotation: Rotation = {},
): Promise<CreatedApiKey> {
  const { name, overlapMs } = rotation;
  return addApiKey(redis, appId, (live, nowMs) => {
    const replaced = live.filter((key) => name === undefined || key.name === name);
    if (replaced.length === 0) throw new AdministrationError(`${appId} has no such API key; use keys create`);
    const kept = live.flatMap((key) => {
      if (!replaced.includes(key)) return [key];
      return overlapMs === undefined ? [] : [endingBy(key, nowMs + overlapMs)];
    });
    const lasting = replaced.filter(({ expires_at }) => expires_at === undefined);
    return { name: name ?? (lasting.length === 1 ? (lasting[0] as Key).name : ''), kept };
  });
}

/** Ends an API key and its tokens, or all of the environment's. */
export async function revokeApiKey(
  redis: Redis,
  appId: string,
  id?: string,
): Promise<AdministrationAnswers['revokeKey']> {
  const nowMs = await readTime(redis);
  return changeRegistry(redis, (snapshot) => {
    environmentNamed(snapshot, appId);
    const live = liveKeys(snapshot.apiKeys.get(appId), nowMs);
    const revoked = live.filter((key) => id === undefined || key.id === id);
    if (id !== undefined && revoked.length === 0)
      throw new AdministrationError(`${appId} has no API key ${id}`);
    const left = live.filter((key) => !revoked.includes(key));
    return {
      changes: revoked.length === 0 ? [] : changesTo(snapshot, appId, left),
      result: { app_id: appId, ...(id === undefined ? {} : { id }), revoked: revoked.length > 0 },
    };
  });
}

/** The valid API keys of an environment, the oldest first; never the keys themselves. */
export async function listApiKeys(redis: Redis, appId: string): Promise<ApiKeyView[]> {
  const [snapshot, nowMs] = await Promise.all([readRegistry(redis), readTime(redis)]);
  environmentNamed(snapshot, appId);
  const live = liveKeys(snapshot.apiKeys.get(appId), nowMs);
  if (live.length === 0) return [];
  const uses = await redis.hmget(registryKeys.documents, ...live.map(useOf));
  return live.map(({ id, name, created_at, expires_at = null }, at) => ({
    id,
    app_id: appId,
    name,
    created_at,
    last_used_at: (JSON.parse(uses[at] ?? '{}') as Partial<KeyUse>).used_at ?? null,
    expires_at,
  }));
}

/** The document that says when a key was used. */
function useOf({ id }: Key): DocumentKey {
  return `key_use:${id}`;
}

/** Returns when the environment's latest API key was created; never the key. */
export async function showApiKey(redis: Redis, appId: string): Promise<AdministrationAnswers['showKey']> {
  const latest = (await listApiKeys(redis, appId)).at(-1);
  return { app_id: appId, created_at: latest?.created_at ?? null };
}

/** The keys of a document that are valid at this time, the oldest first. */
export function liveKeys(document: EnvironmentKeys | undefined, nowMs: number): readonly Key[] {
  const { keys = [] } = document ?? {};
  return keys.filter(({ expires_at }) => expires_at === undefined || Date.parse(expires_at) > nowMs);
}

/** Records that a key got a token, in the registry and so in its second copy; at most once a minute for each key. */
export async function noteApiKeyUse(redis: Redis, key: Key, nowMs: number): Promise<void> {
  const { epoch, documents, uncopied } = registryKeys;
  const use: KeyUse = { used_at: new Date(nowMs - (nowMs % 60_000)).toISOString() };
  const args = [useOf(key), JSON.stringify(use)];
  await runScript(redis, scripts.noteKeyUse, [epoch, documents, uncopied], args);
}

async function addApiKey(
  redis: Redis,
  appId: string,
  decide: (live: readonly Key[], nowMs: number) => { name: string; kept: readonly Key[] },
): Promise<CreatedApiKey> {
  const nowMs = await readTime(redis);
  return changeRegistry(redis, (snapshot) => {
    const { account_id } = environmentNamed(snapshot, appId);
    const live = liveKeys(snapshot.apiKeys.get(appId), nowMs);
    const { name, kept } = decide(live, nowMs);
    checkNewKey(name, kept);
    const { key, secret } = newKey(form, name);
    const changes = changesTo(snapshot, appId, [...kept, key]);
    // Replacing a key must always be possible.
    if (kept.length >= live.length) checkSize(snapshot, account_id, changes);
    return {
      changes,
      result: { app_id: appId, id: key.id, name, api_key: secret },
    };
  });
}

function endingBy(key: Key, endsMs: number): Key {
  const ends = new Date(Math.min(endsMs, Date.parse(key.expires_at ?? '') || endsMs));
  return { ...key, expires_at: ends.toISOString() };
}

/** Leaves an environment only these keys, and forgets when its other keys were used. */
function changesTo(snapshot: RegistrySnapshot, appId: string, keys: readonly Key[]): Change[] {
  const document: EnvironmentKeys | undefined = keys.length === 0 ? undefined : { app_id: appId, keys };
  const gone = liveKeys(snapshot.apiKeys.get(appId), 0).filter(
    ({ id }) => !keys.some((key) => key.id === id),
  );
  return [
    { key: `api_key:${appId}`, document },
    ...gone.map((key): Change => ({ key: useOf(key), document: undefined })),
  ];
}

/** Reads how long replaced keys stay valid, such as `24h`, in ms. */
export function parseOverlap(value: unknown): number {
  const [, count, unit] = /^(\d+)([smhd])$/.exec(typeof value === 'string' ? value : '') ?? [];
  const ms = Number(count) * ({ s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit ?? ''] ?? Number.NaN);
  if (!(ms > 0 && ms <= administration.overlapMsMax))
    throw new AdministrationError('overlap must be a time such as 30m, 24h or 7d, at most 90d');
  return ms;
}
