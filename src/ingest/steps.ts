// Work that may take long: a generator that yields wherever something else may be done in between. Whoever knows that it
// is short does it at once; `http/protocol/turns.ts` does the rest in turns.

export type Steps<T> = Generator<undefined, T, undefined>;

/** Does all of it now. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}
