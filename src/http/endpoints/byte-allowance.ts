// How many bytes an address may send: an allowance that is full at first and fills up again steadily. Kept in the process,
// since it protects the process: refusing costs a look-up, before anything is parsed. Bytes count as they are after inflating.

import type { Environments } from '../../accounts/environments.js';
import { hashImportToken } from '../../accounts/import-tokens.js';
import { addressAllowances, receiving } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import { requestsLimited } from '../../metrics.js';
import { readBasic, readBasicName, readBearer } from '../protocol/authorization.js';
import { type BodyTypes, readJsonBody, type TakeBody } from '../protocol/body.js';
import { networkOf } from '../protocol/caller-address.js';
import type { Exchange } from '../protocol/exchange.js';

export type ByteAllowance = {
  /** Takes bytes from an address's allowance. Returns 0, or, with nothing taken, how long to wait until they fit. */
  take(network: string, bytes: number): number;
};

/** `bytesMax`: as many at once, and as many again in a window. `clock` is in ms and never set back. */
export function createByteAllowance(bytesMax: number, clock = () => performance.now()): ByteAllowance {
  const { windowMs, keptMax } = addressAllowances;
  /** When each allowance is full again. The address that sent nothing for the longest time comes first. */
  const fullAtMs = new Map<string, number>();

  return {
    take: (network, bytes) => {
      const nowMs = clock();
      const fullMs = Math.max(nowMs, fullAtMs.get(network) ?? nowMs) + (bytes / bytesMax) * windowMs;
      const waitMs = fullMs - nowMs - windowMs;
      if (waitMs > 0) return waitMs;
      fullAtMs.delete(network);
      fullAtMs.set(network, fullMs);
      // Against so many addresses within a minute limits by address cannot help.
      if (fullAtMs.size > keptMax) fullAtMs.delete(fullAtMs.keys().next().value as string);
      return 0;
    },
  };
}

/** Which bodies of an endpoint take from the allowance of their address. */
export type AllowanceRule = {
  /** The name of the limit, in metrics. */
  readonly name: 'collect_address' | 'address';
  readonly allowance: ByteAllowance;
  readonly counts: (exchange: Exchange, bytes: number) => boolean;
};

/** What endpoints of servers need besides. */
export type ForStrangers = { readonly largeBodies: AllowanceRule };

/** The rule for the client library's endpoint: all bodies count. */
export function everyBody(bytesMax: number): AllowanceRule {
  return { name: 'collect_address', allowance: createByteAllowance(bytesMax), counts: () => true };
}

/**
 * The rule for the endpoints of servers together. A small body that is not compressed costs its sender as much as the service,
 * and comes up to 25,000 times a second, so it does not count. Nor do the bodies of callers with a good write key or token of
 * an import: they are known, and the limits of their environment hold for them.
 */
export function largeBodiesOfStrangers(
  bytesMax: number,
  environments: Pick<Environments, 'ofWriteKey' | 'hasImport'>,
): AllowanceRule {
  const isKnown = ({ framing: { authorization, importToken } }: Exchange): boolean => {
    if (importToken !== undefined && environments.hasImport(hashImportToken(importToken))) return true;
    if (authorization === undefined) return false;
    const keys = [
      readBasic(authorization)?.password,
      readBasicName(authorization),
      readBearer(authorization),
    ];
    return keys.some((key) => key !== undefined && environments.ofWriteKey(key) !== undefined);
  };
  return {
    name: 'address',
    allowance: createByteAllowance(bytesMax),
    counts: (exchange, bytes) =>
      (bytes > receiving.smallBytesMax || exchange.framing.encoding === 'gzip') && !isKnown(exchange),
  };
}

/** Reads the body of an endpoint for strangers, as `readJsonBody` does, and refuses it beyond the allowance of its address. */
export function readAllowedBody(
  exchange: Exchange,
  endpoint: string,
  { name, allowance, counts }: AllowanceRule,
  bytesMax: number,
  take: TakeBody,
  types?: BodyTypes,
): void {
  const takeAllowed: TakeBody = (body, owned) => {
    const waitMs = counts(exchange, body.length)
      ? allowance.take(networkOf(exchange.address), body.length)
      : 0;
    if (waitMs === 0) return take(body, owned);
    requestsLimited.inc({ endpoint, limit: name });
    exchange.refuse(tooManyBytes, {}, [['Retry-After', String(Math.ceil(waitMs / 1000))]]);
  };
  readJsonBody(exchange, bytesMax, takeAllowed, types);
}

const tooManyBytes = rejection('rate_limited', 'This address has sent too many bytes; nothing was stored.');
