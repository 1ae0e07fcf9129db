// The report of a round: one line, and everything that is known if a promise was broken.

import type { Broken } from './broken.js';
import type { RoundResult } from './round.js';
import { describeSchedule } from './schedule.js';

const brokenShownMax = 8;

export function describeRound(result: RoundResult): string {
  const { schedule, broken, acknowledged, deletions, unknown, unknownStored, tookMs, phasesMs } = result;
  const { exports, keptOut, calls } = result;
  const verdict = broken.length === 0 ? 'kept' : `BROKEN ${broken.length}`;
  const desk = `${deletions} deletions (${calls} calls), ${exports} exports, ${keptOut} kept out`;
  const counts = `${acknowledged} acknowledged, ${desk}, ${unknown} unknown (${unknownStored} stored)`;
  const seconds = (ms = 0) => (ms / 1_000).toFixed(1);
  const { heal, recover, drain, delete: deleted, export: exported } = phasesMs;
  const took = `${seconds(tookMs)} s (healed ${seconds(heal)}, recovered ${seconds(recover)}, drained ${seconds(drain)}, deleted ${seconds(deleted)}, exported ${seconds(exported)})`;
  return `seed ${schedule.seed}: ${verdict}, ${counts}, ${took}; ${describeSchedule(schedule)}`;
}

/** Describes everything that helps to understand a round that broke a promise. */
export function describeFailure(result: RoundResult, commit: string): string {
  const { schedule, done, broken, phasesMs, outputsIn } = result;
  const faults = done.map(
    ({ fault, took, fromMs, toMs, error }) =>
      `  ${Math.round(fromMs)} to ${Math.round(toMs)} ms  ${fault}${took ? '' : ' (took no effect)'}${error === undefined ? '' : `: ${error}`}`,
  );
  const promises = oneOfEachFirst(broken)
    .slice(0, brokenShownMax)
    .map(({ kind, what, detail }) => `  ${kind}: ${what}: ${detail.slice(0, 6_000)}`);
  return [
    `A promise was broken at commit ${commit}, seed ${schedule.seed}. Replay: ${schedule.replay}`,
    `Its schedule: ${describeSchedule(schedule)}`,
    `Its faults, on the clock of the history:`,
    ...faults,
    `What was broken, ${broken.length} in all (${Object.entries(countKinds([result]))
      .map(([kind, count]) => `${count} ${kind}`)
      .join(', ')}):`,
    ...promises,
    `Phases in ms: ${JSON.stringify(phasesMs)}`,
    ...(outputsIn === undefined ? [] : [`What its processes wrote: ${outputsIn}`]),
  ].join('\n');
}

/** Moves one of each kind to the front, so that a frequent kind does not hide the others. */
function oneOfEachFirst(broken: readonly Broken[]): Broken[] {
  const isFirst = ({ kind }: Broken, index: number) =>
    broken.findIndex((other) => other.kind === kind) === index;
  return [...broken.filter(isFirst), ...broken.filter((each, index) => !isFirst(each, index))];
}

export function countKinds(results: readonly RoundResult[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of results.flatMap(({ broken }) => broken)) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

export function countFaults(results: readonly RoundResult[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { fault, took } of results.flatMap(({ done }) => done)) {
    counts.set(fault, (counts.get(fault) ?? 0) + (took ? 1 : 0));
  }
  return counts;
}
