// Repeats the failed scenarios of a session, so that a short stall of a shared machine does not cost the results of the others.

import { BenchError } from './failure.js';
import type { Results } from './results.js';

/** The scenarios to repeat, and the session's options. Throws BenchError if none failed. */
export function planAgain({ failures, command }: Results) {
  if (failures.length === 0) throw new BenchError('nothing failed in this session');
  const names = failures.flatMap(({ scenario }) => scenario.split(', '));
  return { names, args: command.split(' ').slice(1) };
}

/** Adds the results of repeated scenarios to their session. A scenario that failed again stays failed. */
export function addAgain(session: Results, again: Results): Results {
  const failedAgain = new Set(again.failures.map(({ scenario }) => scenario));
  const { date } = again.machine;
  return {
    ...again,
    ...session,
    seconds: session.seconds + again.seconds,
    ways: [...session.ways, ...again.ways],
    failures: again.failures,
    repeated: [
      ...(session.repeated ?? []),
      ...session.failures
        .filter(({ scenario }) => !failedAgain.has(scenario))
        .map((failure) => ({ ...failure, date })),
    ],
  };
}
