// What changed between two sessions: every figure that both have, and whether the change is more than noise.

import { figure, median, textTable } from '../figures.js';
import type { Results } from '../results.js';
import { type Metric, metricsOf } from './metrics.js';

/** Of the medians. A smaller change says nothing, even if no run of one session reaches the other's. */
const changeMin = 0.03;
/** If a side has only one run, nothing shows how much it varies. */
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

/** Figures of both, in the order of the second session. */
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
  const [namesA, namesB] = [a, b].map((results) => new Set(metricsOf(results).map((metric) => metric.name)));
  const onlyOne = [...(namesA ?? [])].filter((metric) => !namesB?.has(metric)).length;
  const onlyOther = [...(namesB ?? [])].filter((metric) => !namesA?.has(metric)).length;
  const notes = [
    `A: ${name(a)}; B: ${name(b)}. Medians. A change counts when no run of one reaches the other's: from 3 %, from 10 % where there is one run only.`,
    ...(differentMachines(a, b)
      ? ['They ran on different machines: compare ratios within each instead.']
      : []),
    ...(onlyOne + onlyOther > 0 ? [`Only in A: ${onlyOne} figures; only in B: ${onlyOther}.`] : []),
  ];
  return `${textTable({ head: ['', 'A', 'B', 'change', ''], rows })}\n\n${notes.join('\n')}\n`;
}

function differentMachines({ machine: a }: Results, { machine: b }: Results): boolean {
  return a.cores !== b.cores || a.processor !== b.processor || a.dataOnDisk !== b.dataOnDisk;
}
