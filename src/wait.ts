// Waits for changes that nobody announces, by asking again and again within a time limit.

import { setTimeout as pause } from 'node:timers/promises';

/**
 * Asks until the answer is truthy; settles with the last answer, which is falsy if the time ran out. It asks at least once, and a last
 * time when the time is over.
 */
export async function untilTrue<Answer>(
  ask: () => Answer | Promise<Answer>,
  { everyMs = 50, msMax }: { readonly everyMs?: number; readonly msMax: number },
): Promise<Answer> {
  const giveUpAt = performance.now() + msMax;
  for (;;) {
    const answer = await ask();
    if (answer || performance.now() >= giveUpAt) return answer;
    await pause(everyMs);
  }
}

/** Whoever calls while `ask` runs shares the next run, which begins when that one has ended. */
export function sharing<Answer>(ask: () => Promise<Answer>): () => Promise<Answer> {
  let running: Promise<Answer> | undefined;
  let next: Promise<Answer> | undefined;
  const begin = () => {
    next = undefined;
    running = ask().finally(() => {
      running = undefined;
    });
    return running;
  };
  return () => {
    if (running === undefined) return begin();
    next ??= running.then(begin, begin);
    return next;
  };
}
