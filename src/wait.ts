// Waits for changes that nobody announces, by asking again and again until a time limit.

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

/** Settles as `work` does, or with `late` once the time is over. */
export function inTime<Result, Late>(work: Promise<Result>, ms: number, late: Late): Promise<Result | Late> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<Late>((resolve) => {
    timer = setTimeout(resolve, Math.max(0, ms), late);
  });
  return Promise.race([work, over]).finally(() => clearTimeout(timer));
}

/** Whether work succeeded, once it has settled. Errors for which `isExpected` does not hold reject. */
export function succeeds(
  work: Promise<unknown>,
  isExpected: (error: unknown) => boolean = () => true,
): Promise<boolean> {
  return work.then(
    () => true,
    (error: unknown) => {
      if (isExpected(error)) return false;
      throw error;
    },
  );
}

/**
 * A function that runs `ask`. All callers during a run share the next one, which begins once the current run has ended. Runs begin at least
 * `everyMs` apart; callers who come too early share the next one too.
 */
export function sharing<Answer>(ask: () => Promise<Answer>, everyMs = 0): () => Promise<Answer> {
  let running: Promise<Answer> | undefined;
  let next: Promise<Answer> | undefined;
  let beganMs = Number.NEGATIVE_INFINITY;
  const begin = () => {
    next = undefined;
    beganMs = performance.now();
    running = ask().finally(() => {
      running = undefined;
    });
    return running;
  };
  const beginLater = async () => {
    await running?.catch(() => undefined);
    const waitMs = beganMs + everyMs - performance.now();
    if (waitMs > 0) await pause(waitMs);
    return begin();
  };
  return () => {
    if (next === undefined && running === undefined && performance.now() >= beganMs + everyMs) return begin();
    next ??= beginLater();
    return next;
  };
}
