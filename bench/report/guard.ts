// Has the path of an event become more expensive? Compares the cost of an event in four ways, each as a multiple of its floor in the same
// round, with that of a stored session. Ratios, since machines and hours differ by a factor of two.

import { median, textTable } from '../figures.js';
import type { Results } from '../results.js';
import { costsOf, ratios } from './targets.js';

/** Each way with its floor. */
const guarded = [
  ['single', 'uws'],
  ['single-keys', 'uws'],
  ['bulk-500', 'engine'],
  ['bulk-500-keys', 'engine'],
] as const;

/** The scenarios that a session has to measure. */
export const guardedNames: readonly string[] = [...new Set(guarded.flat())];

/** Compares a session with a stored one. */
export function guard(before: Results, after: Results) {
  return guarded.map(([way, floor]) => {
    const [stored, now] = [timesOf(before, way, floor), timesOf(after, way, floor)];
    const isMeasured = stored.length > 0 && now.length > 0;
    return {
      way,
      stored,
      now,
      verdict: isMeasured ? verdictOf(stored, now) : 'not measured',
    };
  });
}

/** Smaller changes of the median do not count, even if the runs of the two sessions do not overlap. */
const changeMin = 0.03;
/** A single run does not show how much a figure varies. */
const changeMinOfOneRun = 0.1;

function verdictOf(stored: readonly number[], now: readonly number[]): 'better' | 'same' | 'worse' {
  const change = median(now) / median(stored) - 1;
  const isOne = stored.length === 1 || now.length === 1;
  const isApart = Math.max(...stored) < Math.min(...now) || Math.max(...now) < Math.min(...stored);
  if (!isApart || Math.abs(change) < (isOne ? changeMinOfOneRun : changeMin)) return 'same';
  return change < 0 ? 'better' : 'worse';
}

/** The way's CPU as a multiple of its floor's, by round. */
function timesOf({ ways }: Results, way: string, floor: string): number[] {
  const costs = (name: string) => costsOf(ways.find((each) => each.name === name)?.runs ?? []);
  return ratios(costs(way), costs(floor)).filter(Number.isFinite);
}

const changeNote =
  'Medians. A change counts if the runs do not overlap and it is at least 3 %, or 10 % where there is only one run.';

export function guardTable(found: ReturnType<typeof guard>, { machine }: Results): string {
  const head = ['times the floor', `at ${machine.commit}`, 'now', ''];
  const rows = found.map(({ way, stored, now, verdict }) => [way, stored, now, verdict]);
  return `${textTable({ head, rows })}\n\n${changeNote}\n`;
}
