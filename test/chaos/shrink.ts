// Looks for a shorter schedule that still breaks a promise: leaves out each fault without which the rest still fails.

import type { RoundResult } from './round.js';
import type { Planned, Schedule } from './schedule.js';

const replaysMax = 10;
const replaysMsMax = 5 * 60_000;

/** Settles with the shortest failing round that was found; with `failing` itself if no shorter one failed. */
export async function shrink(
  failing: RoundResult,
  run: (schedule: Schedule) => Promise<RoundResult>,
): Promise<RoundResult> {
  let shortest = failing;
  let replays = 0;
  const endsMs = performance.now() + replaysMsMax;
  for (let index = 0; index < countFaults(shortest.schedule) && replays < replaysMax; ) {
    if (performance.now() > endsMs) break;
    replays += 1;
    const result = await run(without(shortest.schedule, index));
    if (result.broken.length > 0) shortest = result;
    else index += 1;
  }
  return shortest;
}

function countFaults({ steps }: Schedule): number {
  return steps.flat(2).length;
}

/** The schedule without its n-th fault, and without steps and tracks that become empty. */
export function without({ steps, ...schedule }: Schedule, index: number): Schedule {
  let at = 0;
  const keeps = (_: Planned) => at++ !== index;
  const kept = steps
    .map((tracks) => tracks.map((track) => track.filter(keeps)).filter((track) => track.length > 0))
    .filter((tracks) => tracks.length > 0);
  return { ...schedule, steps: kept };
}
