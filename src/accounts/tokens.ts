// Access tokens of the deletion API: minted for the API key of an account's Main Production environment, good
// for an hour, and dead at once when the key is rotated or revoked or the environment stops being main. Only
// hashes of keys and tokens are stored; they are compared in constant time.

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { deletions } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { countWithin, valuesOf } from '../redis/transactions.js';
import { hashApiKey } from './accounts.js';
import type { ApiKey, Environment } from './documents.js';
import { StateNotLoaded } from './registry.js';

/** Who calls: the account, and the key by which it came. */
export type Caller = { readonly accountId: string; readonly appId: string; readonly keyCreatedAt: string };

/**
 * A token, or why there is none: `wrong` for every cause alike, `limited` after too many failures, or how long to wait
 * until one of as many live tokens as a key may have ends.
 */
export type Minted = { readonly accessToken: string } | { readonly waitMs: number } | 'wrong' | 'limited';

type TokenRecord = { readonly app_id: string; readonly key_hash: string };

/** Mints a token. `address` is the caller's; failures are counted by it and the app_id. */
export async function mintToken(
  redis: Redis,
  appId: string,
  apiKey: string,
  address: string,
): Promise<Minted> {
  const failuresKey = registryKeys.tokenFailures(digestOf(`${appId}\0${address}`));
  const { environment, key } = await readAccess(redis, appId);
  // An unknown app_id is compared too, so that it costs the same.
  const right = equal(hashApiKey(apiKey), key?.hash ?? digestOf('no key'));
  if (!right || key === undefined || environment?.main !== true) {
    // Counted before it is answered: of many at once no more than the limit are told that they are wrong.
    const failures = await countWithin(redis, failuresKey, 60_000);
    return failures > deletions.tokenFailuresPerMinuteMax ? 'limited' : 'wrong';
  }
  if (Number((await redis.get(failuresKey)) ?? 0) >= deletions.tokenFailuresPerMinuteMax) return 'limited';
  const accessToken = `slt_${randomBytes(32).toString('base64url')}`;
  const record: TokenRecord = { app_id: appId, key_hash: key.hash };
  const waitMs = await runScript(
    redis,
    scripts.issueToken,
    [registryKeys.token(digestOf(accessToken)), registryKeys.liveTokens(key.hash)],
    [JSON.stringify(record), deletions.tokenMsMax, deletions.liveTokensPerKeyMax],
  );
  return waitMs === 0 ? { accessToken } : { waitMs: Number(waitMs) };
}

/**
 * Who a token belongs to; undefined when it opens nothing, whatever the cause. Throws StateNotLoaded when Redis was
 * emptied.
 */
export async function callerOfToken(redis: Redis, accessToken: string): Promise<Caller | undefined> {
  const text = await redis.get(registryKeys.token(digestOf(accessToken)));
  if (text === null) {
    if ((await redis.exists(registryKeys.epoch)) === 0) throw new StateNotLoaded();
    return undefined;
  }
  const record = JSON.parse(text) as TokenRecord;
  const { environment, key } = await readAccess(redis, record.app_id);
  if (environment?.main !== true || key === undefined || !equal(key.hash, record.key_hash)) return undefined;
  return { accountId: environment.account_id, appId: record.app_id, keyCreatedAt: key.created_at };
}

/** Whether a token may ask for a status once more in this second. */
export async function allowStatusRequest(redis: Redis, accessToken: string): Promise<boolean> {
  const key = registryKeys.statusRequests(digestOf(accessToken));
  return (await countWithin(redis, key, 1_000)) <= deletions.statusRequestsPerSecondMax;
}

/** Throws StateNotLoaded when Redis was emptied: then it knows no key, and none is wrong for that. */
async function readAccess(
  redis: Redis,
  appId: string,
): Promise<{ environment: Environment | undefined; key: ApiKey | undefined }> {
  const replies = await redis
    .multi()
    .get(registryKeys.epoch)
    .hmget(registryKeys.documents, `environment:${appId}`, `api_key:${appId}`)
    .exec();
  const [epoch, documents] = valuesOf(replies);
  if (epoch === null) throw new StateNotLoaded();
  const [environment, key] = documents as (string | null)[];
  return {
    environment: environment == null ? undefined : (JSON.parse(environment) as Environment),
    key: key == null ? undefined : (JSON.parse(key) as ApiKey),
  };
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function equal(a: string, b: string): boolean {
  return a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));
}
