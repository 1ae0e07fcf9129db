// How many bytes of bodies an address may send, or an environment whose key comes with them: an allowance that is full at first and
// fills up again steadily. Kept in the process, since it protects the process: refusing costs a look-up, before anything is parsed.
// Bytes count as they are after inflating.

import { hashImportToken } from '../../accounts/import-tokens.js';
import { addressAllowances, type RateLimit, receiving } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import { requestsLimited } from '../../metrics.js';
import type { Environments, LiveEnvironment } from '../../registry/environments.js';
import { readBasic, readBasicName, readBearer } from '../protocol/authorization.js';
import type { TakeBody } from '../protocol/body.js';
import { networkOf } from '../protocol/caller-address.js';
import type { Exchange } from '../protocol/exchange.js';

export type ByteAllowance = {
  /**
   * Takes bytes from the allowance of somebody who may send `max` at once, and as many again in a window. Returns 0, or, with
   * nothing taken, how long to wait until they fit. More bytes than `max` take all of it: else they would never fit.
   */
  take(sender: string, bytes: number, limit: Pick<RateLimit, 'max' | 'windowMs'>): number;
};

/** `clock` is in ms and never set back. */
export function createByteAllowance(clock = () => performance.now()): ByteAllowance {
  /** When each allowance is full again. Who sent nothing for the longest time comes first. */
  const fullAtMs = new Map<string, number>();

  return {
    take: (sender, bytes, { max, windowMs }) => {
      const nowMs = clock();
      const fullMs = Math.max(nowMs, fullAtMs.get(sender) ?? nowMs) + Math.min(bytes / max, 1) * windowMs;
      const waitMs = fullMs - nowMs - windowMs;
      if (waitMs > 0) return waitMs;
      fullAtMs.delete(sender);
      fullAtMs.set(sender, fullMs);
      // Against so many addresses within a minute limits by address cannot help.
      if (fullAtMs.size > addressAllowances.keptMax) fullAtMs.delete(fullAtMs.keys().next().value as string);
      return 0;
    },
  };
}

/** Takes the bytes of a body from an allowance. Returns the name of the limit for metrics, and 0 or how long to wait. */
export type AllowanceRule = (exchange: Exchange, bytes: number) => Taken;
type Taken = { readonly limit: 'collect_address' | 'address' | 'app_bytes'; readonly waitMs: number };

/** Most bodies: made once, since each single event asks. */
const nothingTaken: Taken = { limit: 'address', waitMs: 0 };

/** What endpoints of servers need besides. */
export type ForStrangers = { readonly largeBodies: AllowanceRule };

/** The rule for the client library's endpoint: all bodies count. */
export function everyBody(bytesMax: number): AllowanceRule {
  const take = takeOfAddress(bytesMax);
  return (exchange, bytes) => ({ limit: 'collect_address', waitMs: take(exchange, bytes) });
}

/**
 * The rule for the endpoints of servers together. A small body that is not compressed costs its sender as much as the service,
 * and comes up to 25,000 times a second, so it does not count. A body with a good write key or token of an import takes from the
 * allowance of that environment, whichever one it is about: as many bytes as the environment may have stored. So an address that
 * many share holds up nobody with a key, and nobody gets more by a key of their own.
 */
export function largeBodiesOfServers(
  bytesMax: number,
  environments: Pick<Environments, 'ofWriteKey' | 'ofImport'>,
): AllowanceRule {
  const takeOfStranger = takeOfAddress(bytesMax);
  const ofEnvironments = createByteAllowance();

  function caller({ framing: { authorization, importToken } }: Exchange): LiveEnvironment | undefined {
    const importing =
      importToken === undefined ? undefined : environments.ofImport(hashImportToken(importToken));
    if (importing !== undefined || authorization === undefined) return importing;
    const keys = [
      readBasic(authorization)?.password,
      readBasicName(authorization),
      readBearer(authorization),
    ];
    for (const key of keys) {
      const found = key === undefined ? undefined : environments.ofWriteKey(key);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  return (exchange, bytes) => {
    if (bytes <= receiving.smallBytesMax && exchange.framing.encoding === 'identity') return nothingTaken;
    const environment = caller(exchange);
    if (environment === undefined) return { limit: 'address', waitMs: takeOfStranger(exchange, bytes) };
    const { appId, limits } = environment;
    const limit = limits.app_bytes;
    return {
      limit: 'app_bytes',
      waitMs: limit === undefined ? 0 : ofEnvironments.take(appId, bytes, limit),
    };
  };
}

function takeOfAddress(bytesMax: number): (exchange: Exchange, bytes: number) => number {
  const allowance = createByteAllowance();
  const limit = { max: bytesMax, windowMs: addressAllowances.windowMs };
  return ({ address }, bytes) => allowance.take(networkOf(address), bytes, limit);
}

/** Takes the bodies of an endpoint for strangers, and refuses those beyond the allowance of their sender. */
export function withinAllowance(endpoint: string, rule: AllowanceRule, take: TakeBody): TakeBody {
  return (exchange, body, owned) => {
    const { limit, waitMs } = rule(exchange, body.length);
    if (waitMs === 0) return take(exchange, body, owned);
    requestsLimited.inc({ endpoint, limit });
    const reason = limit === 'app_bytes' ? tooManyOfEnvironment : tooManyOfAddress;
    exchange.refuse(reason, {}, [['Retry-After', String(Math.ceil(waitMs / 1000))]]);
  };
}

const tooManyOfAddress = rejection(
  'rate_limited',
  'This address has sent too many bytes; nothing was stored.',
);
const tooManyOfEnvironment = rejection(
  'rate_limited',
  'Too many bytes came with keys of this environment (app_bytes); nothing was stored.',
);
