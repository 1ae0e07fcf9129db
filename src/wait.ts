// Waiting for what nobody tells: asking again and again, within a time.

import { setTimeout as pause } from 'node:timers/promises';

/**
 * Asks until the answer is true, or something; settles with the last one, which is false or nothing if the time was over. It asks once
 * at least, and for the last time when the time is over.
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
