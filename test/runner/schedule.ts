// Decides in which order test files run, and which may run beside the running ones.

import { filesAtOnce, type Lane } from './lanes.js';

export type Planned = {
  readonly path: string;
  readonly lane: Lane;
  /** Whether the file uses the deployment that several share. */
  readonly shares: boolean;
  /** How long the file took when it was recorded; a file without a record counts as a long one. */
  readonly seconds: number;
  /** The CPU time, likewise. */
  readonly cpuSeconds: number;
};

/**
 * How many cores the files that run side by side may need together, by their records: with more, each file would only take longer and
 * reach its deadlines more easily. This is less than the two cores of a machine, since the records are of a fast one.
 */
const coresMax = 1.5;
/** While this much of the machine is idle, one more file may start whatever the records say. */
const idleCoresMin = 0.25;

/**
 * Sorts files: first those that share a deployment, so that it can end soon, then those that take long or much CPU, so that the last ones
 * are short and fit anywhere, and at the end those that run alone.
 */
export function inOrder(files: readonly Planned[]): Planned[] {
  const weight = ({ seconds, cpuSeconds }: Planned) => seconds + cpuSeconds;
  return [...files].sort(
    (a, b) =>
      filesAtOnce[b.lane] - filesAtOnce[a.lane] ||
      Number(b.shares) - Number(a.shares) ||
      weight(b) - weight(a),
  );
}

/** The first file that may start beside the running ones by their lanes and the CPU. */
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
