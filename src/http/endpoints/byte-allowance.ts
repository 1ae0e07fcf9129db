// How many bytes of bodies an address may send, or an environment if the request carries one of its keys. Each has an allowance that starts
// full and refills steadily. It is kept in the process, since it protects the process: a refusal costs one look-up, before anything is
// parsed. Bytes are counted after inflating.

import { addressAllowances, type RateLimit, receiving } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import { requestsLimited } from '../../metrics.js';
import type { Environments, LiveEnvironment } from '../../registry/environments.js';
import { hashSecret } from '../../registry/secrets.js';
import { readBasic, readBasicName, readBearer } from '../protocol/authorization.js';
import type { TakeBody } from '../protocol/body.js';
import { networkOf } from '../protocol/caller-address.js';
import type { Exchange } from '../protocol/exchange.js';
import { retryAfter } from './rate-limit-headers.js';

export type ByteAllowance = {
  /**
   * Takes bytes from the allowance of a sender, who may send `max` bytes at once and as many again in each window. Returns 0, or, having
   * taken nothing, how many ms to wait until they fit. A body larger than `max` takes the whole allowance, since it would otherwise never
   * fit.
   */
  take(sender: string, bytes: number, limit: Pick<RateLimit, 'max' | 'windowMs'>): number;
};

/** `clock`: a time in ms that never goes back. */
export function createByteAllowance(clock = () => performance.now()): ByteAllowance {
  /** When each allowance is full again. The sender that has been silent longest comes first. */
  const fullAtMs = new Map<string, number>();

  return {
    take: (sender, bytes, { max, windowMs }) => {
      const nowMs = clock();
      const fullMs = Math.max(nowMs, fullAtMs.get(sender) ?? nowMs) + Math.min(bytes / max, 1) * windowMs;
      const waitMs = fullMs - nowMs - windowMs;
      if (waitMs > 0) return waitMs;
      fullAtMs.delete(sender);
      fullAtMs.set(sender, fullMs);
      // With so many addresses within a minute, limits by address no longer help. A tenth goes at once, since finding the first key of a map
      // passes over all that were deleted before it.
      if (fullAtMs.size > addressAllowances.keptMax)
        for (const oldest of fullAtMs.keys()) {
          if (fullAtMs.size <= 0.9 * addressAllowances.keptMax) break;
          fullAtMs.delete(oldest);
        }
      return 0;
    },
  };
}

/** Takes the bytes of a body from an allowance. Returns the name of the limit for metrics, and 0 or how long to wait. */
export type AllowanceRule = (exchange: Exchange, bytes: number) => Taken;
type Taken = { readonly limit: 'collect_address' | 'address' | 'app_bytes'; readonly waitMs: number };

/** The result for most bodies. Made once, since every event needs it. */
const nothingTaken: Taken = { limit: 'address', waitMs: 0 };

/** What the endpoints for servers need in addition. */
export type LargeBodyOptions = { readonly largeBodies: AllowanceRule };

/** The rule for the client library's endpoint: every body counts. */
export function everyBody(bytesMax: number): AllowanceRule {
  const take = takeOfAddress(bytesMax);
  return (exchange, bytes) => ({ limit: 'collect_address', waitMs: take(exchange, bytes) });
}

/**
 * The rule for all endpoints for servers. A small uncompressed body does not count: it costs its sender as much as the service, and tens of
 * thousands arrive each second. A body with a valid write key or import token takes from the allowance of that key's environment, whichever
 * environment its records name. This allowance is as many bytes as the environment may have stored. So senders with a key are not held up
 * by others behind their address, and nobody gets more by using a key of their own.
 */
export function largeBodiesOfServers(
  bytesMax: number,
  environments: Pick<Environments, 'ofWriteKey' | 'ofImport'>,
): AllowanceRule {
  const takeOfStranger = takeOfAddress(bytesMax);
  const ofEnvironments = createByteAllowance();

  function caller({ framing: { authorization, importToken } }: Exchange): LiveEnvironment | undefined {
    const importing = importToken === undefined ? undefined : environments.ofImport(hashSecret(importToken));
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

/** Passes on the bodies of an endpoint, except those that exceed the allowance of their sender, which it refuses. */
export function withinAllowance(endpoint: string, rule: AllowanceRule, take: TakeBody): TakeBody {
  return (exchange, body, owned) => {
    const { limit, waitMs } = rule(exchange, body.length);
    if (waitMs === 0) return take(exchange, body, owned);
    requestsLimited.inc({ endpoint, limit });
    const reason = limit === 'app_bytes' ? tooManyOfEnvironment : tooManyOfAddress;
    exchange.refuse(reason, {}, retryAfter(waitMs / 1000));
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
