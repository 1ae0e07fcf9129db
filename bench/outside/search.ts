// Searches for the highest rate that keeps the bounds: in steps, or by doubling and then halving.

import type { Outcome } from './outcome.js';

export type Tried = { readonly rate: number; readonly kept: boolean; readonly outcome: Outcome };

const firstRate = 100;
/** The search ends when the lowest rate that broke the bounds is at most this many times the highest that kept them. */
const closeEnough = 1.1;
/** Far more requests per second than a single generator can send. */
const rateMax = 1_000_000;

/** Settles with all tried rates in ascending order. */
export async function searchRate(step: number | undefined, tryRate: (rate: number) => Promise<Tried>) {
  const tried: Tried[] = [];
  let kept = 0;
  let missed = rateMax;
  const attempt = async (rate: number) => {
    const result = await tryRate(rate);
    tried.push(result);
    if (result.kept) kept = rate;
    else missed = rate;
  };
  for (let rate = step ?? firstRate; rate < missed; rate = step === undefined ? rate * 2 : rate + step) {
    await attempt(rate);
  }
  while (step === undefined && kept > 0 && missed / kept > closeEnough) {
    await attempt(Math.round((kept + missed) / 2));
  }
  return tried.sort((a, b) => a.rate - b.rate);
}

/** The highest rate that kept the bounds, if any did, and whether the generator or its connections could not send more. */
export function resultOf(tried: readonly Tried[]) {
  const highest = tried.filter(({ kept }) => kept).at(-1);
  const next = tried.find(({ rate }) => rate > (highest?.rate ?? 0));
  return { highest, endedByGenerator: ['generator', 'connections'].includes(next?.outcome.limit ?? '') };
}
