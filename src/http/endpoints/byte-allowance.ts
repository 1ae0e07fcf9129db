// How many bytes an address may send: an allowance that is full at first and fills up again steadily. Kept in the process,
// since it protects the process: refusing costs a look-up, before anything is parsed.

import { collectAddresses } from '../../contract/limits.js';

export type ByteAllowance = {
  /** Takes bytes from an address's allowance. Returns 0, or, with nothing taken, how long to wait until they fit. */
  take(network: string, bytes: number): number;
};

/** `bytesMax`: as many at once, and as many again in a window. `clock` is in ms and never set back. */
export function createByteAllowance(bytesMax: number, clock = () => performance.now()): ByteAllowance {
  const { windowMs, keptMax } = collectAddresses;
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
