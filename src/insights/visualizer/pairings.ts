// Pairings of devices with the Event Visualizer, in Redis. A device begins a pairing and shows its code, and an administrator enters the
// code on a page. From then on the pairing is live as long as a page renews it. Redis holds a hash of the secret, the code, the app_id and
// a keyed digest of the device's address, all for a limited time.

import { createHmac } from 'node:crypto';
import { visualizer } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { visualizerKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { countWithin } from '../../redis/transactions.js';
import { hashSecret, newSecret } from '../../registry/secrets.js';
import { makeCode, readCode } from './code.js';

/** The answer to the device. While it is paired, it sends the secret with every request. */
export type BegunPairing = {
  readonly pairing: string;
  readonly code: string;
  readonly expiresInSeconds: number;
};

/** A waiting or live pairing. */
export type Pairing = { readonly id: string; readonly appId: string };

const secretForm = /^slp_[A-Za-z0-9_-]{43}$/;
const codeAttemptsMax = 5;

/**
 * Begins a pairing for an existing environment. Settles with `too_many` when too many pairings of the environment or of the address are
 * waiting, and with `full` when too many of the whole deployment are. `secret`: the deployment's.
 */
export async function beginPairing(
  redis: Redis,
  secret: string,
  appId: string,
  address: string,
): Promise<BegunPairing | 'too_many' | 'full'> {
  const pairing = newSecret('slp_');
  const id = hashSecret(pairing);
  const digest = digestOfAddress(secret, address);
  for (let attempt = 0; attempt < codeAttemptsMax; attempt++) {
    const code = makeCode();
    const reply = await runScript(
      redis,
      scripts.beginPairing,
      [
        visualizerKeys.pairing(id),
        visualizerKeys.code(code),
        visualizerKeys.waiting,
        visualizerKeys.waitingOfApp(appId),
        visualizerKeys.waitingOfAddress(digest),
      ],
      [
        id,
        appId,
        code,
        digest,
        visualizer.waitingMsMax,
        visualizer.waitingMax,
        visualizer.waitingPerAppMax,
        visualizer.waitingPerAddressMax,
      ],
    );
    if (Number(reply) === 1) return { pairing, code, expiresInSeconds: visualizer.waitingMsMax / 1000 };
    if (Number(reply) === -3) return 'full';
    if (Number(reply) < 0) return 'too_many';
  }
  return 'full';
}

/** A device's pairing, by its secret, if it is waiting or live, and for how long its code is still valid at least. */
export async function findPairing(
  redis: Redis,
  pairing: string,
  appId: string,
): Promise<BegunPairing | undefined> {
  const id = pairingIdOfSecret(pairing);
  if (id === undefined) return undefined;
  const key = visualizerKeys.pairing(id);
  const [[of, code], leftMs] = await Promise.all([redis.hmget(key, 'app_id', 'code'), redis.pttl(key)]);
  if (of !== appId || typeof code !== 'string' || leftMs <= 0) return undefined;
  return { pairing, code, expiresInSeconds: Math.ceil(leftMs / 1000) };
}

/** The waiting or live pairing with a code, given as it was typed; undefined if there is none. */
export async function findPairingByCode(redis: Redis, text: string): Promise<Pairing | undefined> {
  const code = readCode(text);
  const id = code && (await redis.get(visualizerKeys.code(code)));
  const appId = id && (await redis.hget(visualizerKeys.pairing(id), 'app_id'));
  return id && appId ? { id, appId } : undefined;
}

/** Enters a code, which makes its pairing live. Settles with the pairing's id; undefined if there is none. May be repeated. */
export async function enterCode(redis: Redis, text: string): Promise<string | undefined> {
  const keys = [visualizerKeys.code(readCode(text) ?? ''), visualizerKeys.waiting];
  const id = await runScript(redis, scripts.enterPairing, keys, [visualizer.leaseMs, visualizer.liveMsMax]);
  return typeof id === 'string' ? id : undefined;
}

/** Renews a live pairing. Settles with false when it has ended. */
export async function renewPairing(redis: Redis, id: string): Promise<boolean> {
  const keys = [visualizerKeys.pairing(id)];
  return Number(await runScript(redis, scripts.renewPairing, keys, [visualizer.leaseMs])) > 0;
}

/** Ends a pairing by its id. Settles with whether there was one. */
export async function endPairing(redis: Redis, id: string, appId: string): Promise<boolean> {
  const keys = [visualizerKeys.pairing(id), visualizerKeys.waiting];
  return Number(await runScript(redis, scripts.endPairing, keys, [id, appId])) === 1;
}

/** Whether what a device sends with this secret is shown, is not shown yet, or is no longer shown. */
export async function readPairingState(
  redis: Redis,
  id: string,
  appId: string,
): Promise<'live' | 'waiting' | 'ended'> {
  const [of, state] = await redis.hmget(visualizerKeys.pairing(id), 'app_id', 'state');
  if (of !== appId) return 'ended';
  return state === 'live' ? 'live' : 'waiting';
}

/** The id of a pairing from its secret; undefined for a text that is not a secret. */
export function pairingIdOfSecret(pairing: string): string | undefined {
  return secretForm.test(pairing) ? hashSecret(pairing) : undefined;
}

/** What was wrong. The two are counted separately, so that callers without a token do not hold up those with one. */
export type Failure = 'token' | 'code';

/** Whether a network has sent too many wrong tokens, or codes, within the last minute. */
export async function hasTooManyFailures(
  redis: Redis,
  secret: string,
  network: string,
  failure: Failure,
): Promise<boolean> {
  const failures = await redis.get(failuresKey(secret, network, failure));
  return Number(failures ?? 0) >= visualizer.failuresPerMinuteMax;
}

/** Counts a wrong token or code from a network. Settles with whether that makes too many. */
export async function countFailure(
  redis: Redis,
  secret: string,
  network: string,
  failure: Failure,
): Promise<boolean> {
  const key = failuresKey(secret, network, failure);
  return (await countWithin(redis, key, 60_000)) > visualizer.failuresPerMinuteMax;
}

function failuresKey(secret: string, network: string, failure: Failure): string {
  return visualizerKeys.failures(digestOfAddress(secret, `${failure}\0${network}`));
}

/** Keyed, since a plain hash could be reversed by trying all addresses. */
function digestOfAddress(secret: string, address: string): string {
  return createHmac('sha256', secret).update(`visualizer\0${address}`).digest('hex').slice(0, 32);
}
