// What changed between two sessions: every figure that both have, and whether the change is more than noise.

import { figure, median, textTable } from '../figures.js';
import type { Results } from '../results.js';
import { type Metric, metricsOf } from './metrics.js';

/** Smaller changes of the median do not count, even if the runs of the two sessions do not overlap. */
const changeMin = 0.03;
/** Of a single run nobody knows how much it varies. */
const changeMinOfOneRun = 0.1;

export type Comparison = {
  readonly name: string;
  readonly unit: string;
  readonly a: number;
  readonly b: number;
  /** Relative to a: 0.1 is a tenth more. */
  readonly change: number;
  readonly verdict: 'better' | 'worse' | 'same';
};

/** The figures that both sessions have, in the order of the second. */
export function compare(a: Results, b: Results): Comparison[] {
  const before = new Map(metricsOf(a).map((metric) => [metric.name, metric]));
  return metricsOf(b).flatMap((metric) => {
    const earlier = before.get(metric.name);
    return earlier === undefined ? [] : [compareMetric(earlier, metric)];
  });
}

function compareMetric(a: Metric, b: Metric): Comparison {
  const [from, to] = [median(a.values), median(b.values)];
  const change = to / from - 1;
  const one = a.values.length === 1 || b.values.length === 1;
  const apart =
    Math.max(...a.values) < Math.min(...b.values) || Math.max(...b.values) < Math.min(...a.values);
  const differs = apart && Math.abs(change) >= (one ? changeMinOfOneRun : changeMin);
  const improved = change < 0 === (b.better === 'lower');
  const verdict = differs ? (improved ? 'better' : 'worse') : 'same';
  return { name: b.name, unit: b.unit, a: from, b: to, change, verdict };
}

/** As a table for the terminal. */
export function compareResults(a: Results, b: Results): string {
  const rows = compare(a, b).map(({ name, unit, a: from, b: to, change, verdict }) => [
    `${name}, ${unit}`,
    figure(from),
    figure(to),
    `${change >= 0 ? '+' : '−'}${figure(Math.abs(change * 100))} %`,
    verdict === 'same' ? '' : verdict,
  ]);
  const name = ({ machine }: Results) => `${machine.commit} of ${machine.date.slice(0, 16)}`;
  const only = [a, b].map((results) => metricsOf(results).length - rows.length);
  const notes = [
    `A: ${name(a)}; B: ${name(b)}. Medians. A change counts if the runs do not overlap and it is at least 3 %, or 10 % where there is only one run.`,
    ...(differentMachines(a, b)
      ? ['The sessions ran on different machines: compare ratios within each session instead.']
      : []),
    ...(only.some((count) => count > 0) ? [`Only in A: ${only[0]} figures; only in B: ${only[1]}.`] : []),
  ];
  return `${textTable({ head: ['', 'A', 'B', 'change', ''], rows })}\n\n${notes.join('\n')}\n`;
}

function differentMachines({ machine: a }: Results, { machine: b }: Results): boolean {
  return a.cores !== b.cores || a.processor !== b.processor || a.dataOnDisk !== b.dataOnDisk;
}
