// Access tokens of the deletion API: minted for an API key of an account's Main Production environment and valid for an hour, or until the
// key is revoked, replaced or expired, or the environment is no longer main; then they never become valid again. Only hashes of keys and
// tokens are stored; they are compared in constant time.

import { deletions, suppressions } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { findOrConfirmAbsence } from '../redis/replicas.js';
import { runScript, scripts } from '../redis/scripts.js';
import { countWithin } from '../redis/transactions.js';
import type { Environment, EnvironmentKeys, Key } from '../registry/documents.js';
import { readLoaded } from '../registry/registry.js';
import { areEqual, hashSecret, newSecret } from '../registry/secrets.js';
import { liveKeys, noteApiKeyUse } from './api-keys.js';

/** Who calls: the account, and the key of its token. */
export type Caller = {
  readonly accountId: string;
  readonly appId: string;
  readonly keyId: string;
  readonly keyCreatedAt: string;
  /** Only for a caller without a key. */
  readonly submittedBy?: 'person' | 'admin_token' | 'program_key';
  /** The `main_id` of the environment when the token was made. */
  readonly mainId?: string | undefined;
};

/**
 * A token, or why there is none. `wrong`: the credentials are wrong. `limited`: they are wrong after too many failures. `waitMs`: the key
 * or its account has the maximum of tokens, and the next one ends after this time.
 */
export type MintResult = { readonly accessToken: string } | { readonly waitMs: number } | 'wrong' | 'limited';

const noHash = '0'.repeat(64);

type TokenRecord = {
  readonly app_id: string;
  readonly key_hash: string;
  readonly main_id?: string | undefined;
};

/**
 * Mints a token. Failures are counted by the app_id and the caller's `network`. A right key gets its token, however many wrong
 * ones came before, since anybody can send wrong keys with another's app_id and, behind a proxy, from the same address.
 */
export async function mintToken(
  redis: Redis,
  appId: string,
  apiKey: string,
  network: string,
): Promise<MintResult> {
  let hasKeys = false;
  const found = await findOrConfirmAbsence(redis, registryKeys.documents, async () => {
    const { environment, keys, nowMs } = await readAccess(redis, appId);
    hasKeys = keys.length > 0;
    const key = keyOf(keys, hashSecret(apiKey));
    return key === undefined || environment?.main !== true ? undefined : { environment, key, nowMs };
  });
  if (found === undefined) {
    // Failures are counted before the answer, so of many simultaneous requests no more than the limit learn that they are wrong. All
    // app_ids without a key are counted together, since otherwise anybody could make any number of keys in Redis.
    const counted = hashSecret(`${hasKeys ? appId : ''}\0${network}`);
    const failures = await countWithin(redis, registryKeys.tokenFailures(counted), 60_000);
    return failures > deletions.tokenFailuresPerMinuteMax ? 'limited' : 'wrong';
  }
  const { environment, key, nowMs } = found;
  const accessToken = newSecret('slt_');
  const record: TokenRecord = { app_id: appId, key_hash: key.hash, main_id: environment.main_id };
  const { token, liveTokens, issuedTokens } = registryKeys;
  const keys = [token(hashSecret(accessToken)), liveTokens(key.hash), issuedTokens(environment.account_id)];
  const { tokenMsMax, liveTokensPerKeyMax, tokensPerAccountMax } = deletions;
  const args = [JSON.stringify(record), tokenMsMax, liveTokensPerKeyMax, tokensPerAccountMax];
  const [waitMs] = await Promise.all([
    runScript(redis, scripts.issueToken, keys, args),
    noteApiKeyUse(redis, key, nowMs),
  ]);
  return waitMs === 0 ? { accessToken } : { waitMs: Number(waitMs) };
}

/**
 * The caller that a token belongs to; undefined when it is not valid, for any reason. Throws StateNotLoaded when Redis was
 * emptied, and NotOnReplicas.
 */
export function callerOfToken(redis: Redis, accessToken: string): Promise<Caller | undefined> {
  return findOrConfirmAbsence(redis, registryKeys.documents, () => findCaller(redis, accessToken));
}

async function findCaller(redis: Redis, accessToken: string): Promise<Caller | undefined> {
  const token = registryKeys.token(hashSecret(accessToken));
  const [text] = await readLoaded(redis, (transaction) => transaction.get(token));
  if (text === null) return undefined;
  const record = JSON.parse(text as string) as TokenRecord;
  const { environment, keys } = await readAccess(redis, record.app_id);
  const key = keyOf(keys, record.key_hash);
  const { app_id: appId, main_id: mainId } = record;
  if (environment === undefined || !isMainStill(environment, mainId) || key === undefined) return undefined;
  const { account_id: accountId } = environment;
  return { accountId, appId, keyId: key.id, keyCreatedAt: key.created_at, mainId };
}

/** Whether a caller's key is still valid for the account, however old the token is. Throws StateNotLoaded when Redis was emptied. */
export async function isKeyValid(
  redis: Redis,
  { appId, accountId, keyId, mainId }: Caller,
): Promise<boolean> {
  const { environment, keys } = await readAccess(redis, appId);
  const isMain = environment?.account_id === accountId && isMainStill(environment, mainId);
  return isMain && keys.some(({ id }) => id === keyId);
}

/** Whether an environment is main, and has been so without interruption since a token was made. */
function isMainStill({ main, main_id }: Environment, mainId: string | undefined): boolean {
  return main && main_id === mainId;
}

/** Whether a token may ask for another status in this second. */
export async function allowStatusRequest(redis: Redis, accessToken: string): Promise<boolean> {
  const key = registryKeys.statusRequests(hashSecret(accessToken));
  return (await countWithin(redis, key, 1_000)) <= deletions.statusRequestsPerSecondMax;
}

/** Whether a token may submit another list of suppressed users in this second. */
export async function allowSuppressionRequest(redis: Redis, accessToken: string): Promise<boolean> {
  const key = registryKeys.suppressionRequests(hashSecret(accessToken));
  return (await countWithin(redis, key, 1_000)) <= suppressions.requestsPerSecondMax;
}

/** The environment and its keys that are valid now. Throws StateNotLoaded when Redis was emptied: then it knows no key. */
async function readAccess(
  redis: Redis,
  appId: string,
): Promise<{ environment: Environment | undefined; keys: readonly Key[]; nowMs: number }> {
  const [documents, time] = await readLoaded(redis, (transaction) =>
    transaction.hmget(registryKeys.documents, `environment:${appId}`, `api_key:${appId}`).time(),
  );
  const [environment, keys] = documents as (string | null)[];
  const nowMs = Number((time as (string | number)[])[0]) * 1000;
  return {
    environment: environment == null ? undefined : (JSON.parse(environment) as Environment),
    keys: liveKeys(keys == null ? undefined : (JSON.parse(keys) as EnvironmentKeys), nowMs),
    nowMs,
  };
}

/** The key with this hash. Something is always compared, so that an unknown app_id takes the same time. */
function keyOf(keys: readonly Key[], hash: string): Key | undefined {
  let found: Key | undefined;
  for (const key of keys) if (areEqual(key.hash, hash)) found = key;
  if (keys.length === 0) areEqual(noHash, hash);
  return found;
}
