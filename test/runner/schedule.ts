// The order in which test files run.

import { filesAtOnce, type Lane } from './lanes.js';

export type Planned = {
  readonly path: string;
  readonly lane: Lane;
  /** As recorded; a file without a record counts as long. */
  readonly seconds: number;
  /** Of the CPU, likewise. */
  readonly cpuSeconds: number;
};

/**
 * Files that run side by side want at most this many cores together, by their records. With more of them each would only
 * take longer, and reach its deadlines more easily. Less than the two cores that there are: the records are of a fast machine, and
 * on a slow one the same files want more. What that leaves idle is filled below.
 */
const coresMax = 1.5;
/** While so much of the machine is idle, whatever the records say, one more may start. */
const idleCoresMin = 0.25;

/**
 * Files that run alone come last. Before them comes first what takes longest and what takes much of the CPU, so that what is
 * left at the end is short and fits anywhere.
 */
export function inOrder(files: readonly Planned[]): Planned[] {
  const weight = ({ seconds, cpuSeconds }: Planned) => seconds + cpuSeconds;
  return [...files].sort((a, b) => filesAtOnce[b.lane] - filesAtOnce[a.lane] || weight(b) - weight(a));
}

/** The first file that may start beside those that are running, as their lanes and the CPU allow. */
export function nextFile(
  waiting: readonly Planned[],
  running: readonly Planned[],
  idleCores: number,
): Planned | undefined {
  return waiting.find((file) => {
    const together = [file, ...running];
    const cores = together.reduce((sum, { cpuSeconds, seconds }) => sum + cpuSeconds / seconds, 0);
    return (
      (running.length === 0 || cores <= coresMax || idleCores >= idleCoresMin) &&
      together.every(({ lane }) => together.length <= filesAtOnce[lane])
    );
  });
}
