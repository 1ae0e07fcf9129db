// Random numbers that depend only on a seed, so that every case can be repeated.

export type Random = {
  /** A whole number from 0 and below `bound`. */
  below(bound: number): number;
  pick<T>(values: readonly T[]): T;
  oneIn(n: number): boolean;
};

/** The random numbers of one case of a seed; they do not depend on earlier cases. */
export function randomOf(seed: number, caseNumber: number): Random {
  // mulberry32, started from a mix of both.
  let state = (Math.imul(seed | 0, 0x9e3779b1) ^ Math.imul(caseNumber + 1, 0x85ebca6b)) >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  next();
  const below = (bound: number) => Math.floor(next() * bound);
  return { below, pick: (values) => values[below(values.length)] as never, oneIn: (n) => below(n) === 0 };
}
