// Random numbers from a seed: the same seed gives the same schedule.

export type Random = {
  /** A whole number from `min` to `max`. */
  int(min: number, max: number): number;
  pick<T>(values: readonly T[]): T;
  shuffle<T>(values: readonly T[]): T[];
};

/** A generator of 32 bits of state (mulberry32). */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  function next(): number {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }
  const int = (min: number, max: number) => min + Math.floor(next() * (max - min + 1));
  return {
    int,
    pick: (values) => values[int(0, values.length - 1)] as (typeof values)[number],
    shuffle: (values) => {
      const shuffled = [...values];
      for (let last = shuffled.length - 1; last > 0; last -= 1) {
        const other = int(0, last);
        const value = shuffled[last] as (typeof values)[number];
        shuffled[last] = shuffled[other] as (typeof values)[number];
        shuffled[other] = value;
      }
      return shuffled;
    },
  };
}

export function seedOf(seed: number, number: number): number {
  return createRandom((seed ^ Math.imul(number + 1, 0x9e3779b1)) >>> 0).int(1, 2 ** 31 - 1);
}
