// Pages that are connected but have not sent a token and a code yet. Anybody who reaches the port can open such pages, so only a few are
// allowed, per network and in total. The other places of a process are reserved for callers who have both.

import { visualizer } from '../../contract/limits.js';

/** Counts one more page of a network. Returns a function that ends this, or undefined if the page is one too many. */
export type UnpairedPages = (network: string) => (() => void) | undefined;

export function createUnpairedPages(): UnpairedPages {
  const ofNetwork = new Map<string, number>();
  let all = 0;
  const change = (network: string, by: number) => {
    all += by;
    const own = (ofNetwork.get(network) ?? 0) + by;
    if (own === 0) ofNetwork.delete(network);
    else ofNetwork.set(network, own);
  };
  return (network) => {
    const own = ofNetwork.get(network) ?? 0;
    if (all >= visualizer.unpairedMax || own >= visualizer.unpairedPerAddressMax) return undefined;
    change(network, 1);
    let isCounted = true;
    return () => {
      if (isCounted) change(network, -1);
      isCounted = false;
    };
  };
}
