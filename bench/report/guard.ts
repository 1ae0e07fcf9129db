// Has the path of an event become more expensive? Compares the cost of an event in four ways, each as a multiple of its floor in the same
// round, with that of a stored session. Ratios, since machines and hours differ by a factor of two.

import { textTable } from '../figures.js';
import type { Results } from '../results.js';
import { changeNote, changeOf } from './compare.js';
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
      verdict: isMeasured ? changeOf(stored, now, 'lower').verdict : 'not measured',
    };
  });
}

/** The way's CPU as a multiple of its floor's, by round. */
function timesOf({ ways }: Results, way: string, floor: string): number[] {
  const costs = (name: string) => costsOf(ways.find((each) => each.name === name)?.runs ?? []);
  return ratios(costs(way), costs(floor)).filter(Number.isFinite);
}

export function guardTable(found: ReturnType<typeof guard>, { machine }: Results): string {
  const head = ['times the floor', `at ${machine.commit}`, 'now', ''];
  const rows = found.map(({ way, stored, now, verdict }) => [way, stored, now, verdict]);
  return `${textTable({ head, rows })}\n\n${changeNote}\n`;
}
