// Work that may take long: a generator that yields wherever other work may be done in between. Callers that know it to be
// short do it at once; `http/protocol/slices.ts` does the rest in turns.

export type Steps<T> = Generator<undefined, T, undefined>;

/** Does all of it now. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}
