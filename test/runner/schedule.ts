// The order in which test files run.

import { filesAtOnce, type Lane } from './lanes.js';

export type Planned = {
  readonly path: string;
  readonly lane: Lane;
  /** As recorded; a file without a record counts as long. */
  readonly seconds: number;
};

/**
 * Wide lanes first, so that narrow ones don't wait for a gap. Within a lane the longest file first, so that no long one
 * is left at the end.
 */
export function inOrder(files: readonly Planned[]): Planned[] {
  return [...files].sort((a, b) => filesAtOnce[b.lane] - filesAtOnce[a.lane] || b.seconds - a.seconds);
}

/** The first file that may start beside those that are running. */
export function nextFile(waiting: readonly Planned[], running: readonly Planned[]): Planned | undefined {
  return waiting.find((file) =>
    [file, ...running].every(({ lane }) => running.length + 1 <= filesAtOnce[lane]),
  );
}
