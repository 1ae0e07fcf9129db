// Compares two sessions: every figure that is in the tables of both, and whether its change is more than noise.

import { figure, median, textTable, valuesOf } from '../figures.js';
import type { Results } from '../results.js';
import { sectionsOf } from './sections.js';

/** Smaller changes of the median do not count, even if the runs of the two sessions do not overlap. */
const changeMin = 0.03;
/** A single run does not show how much a figure varies. */
const changeMinOfOneRun = 0.1;

type Metric = { readonly better: 'lower' | 'higher'; readonly values: readonly number[] };

/** The figures of all tables, by section, row and column. */
function metricsOf(results: Results): Map<string, Metric> {
  const found = sectionsOf(results).flatMap(({ title, tables }) =>
    tables.flatMap(({ head, better, rows }) =>
      rows.flatMap((row) =>
        row.flatMap((cell, column): [string, Metric][] => {
          const [values, kind] = [valuesOf(cell), better[column]];
          if (kind === undefined || values.length === 0) return [];
          return [[`${title}, ${row[0]}: ${head[column]}`, { better: kind, values }]];
        }),
      ),
    ),
  );
  return new Map(found);
}

export const changeNote =
  'Medians. A change counts if the runs do not overlap and it is at least 3 %, or 10 % where there is only one run.';

type Verdict = 'better' | 'same' | 'worse';

/** Compares the runs of a figure in two sessions. A change is relative to the first session: 0.1 is a tenth more. */
export function changeOf(earlier: readonly number[], later: readonly number[], better: 'lower' | 'higher') {
  const [from, to] = [median(earlier), median(later)];
  const change = to / from - 1;
  const one = earlier.length === 1 || later.length === 1;
  const apart = Math.max(...earlier) < Math.min(...later) || Math.max(...later) < Math.min(...earlier);
  const differs = apart && Math.abs(change) >= (one ? changeMinOfOneRun : changeMin);
  const improved = change < 0 === (better === 'lower');
  const verdict: Verdict = differs ? (improved ? 'better' : 'worse') : 'same';
  return { a: from, b: to, change, verdict };
}

/** The figures that both sessions have, in the order of the second. */
export function compare(a: Results, b: Results) {
  const before = metricsOf(a);
  return [...metricsOf(b)].flatMap(([name, { better, values }]) => {
    const earlier = before.get(name)?.values;
    if (earlier === undefined) return [];
    return [{ name, ...changeOf(earlier, values, better) }];
  });
}

export function compareResults(a: Results, b: Results): string {
  const rows = compare(a, b).map(({ name, a: from, b: to, change, verdict }) => [
    name,
    figure(from),
    figure(to),
    `${change >= 0 ? '+' : '−'}${figure(Math.abs(change * 100))} %`,
    verdict === 'same' ? '' : verdict,
  ]);
  const name = ({ machine }: Results) => `${machine.commit} of ${machine.date.slice(0, 16)}`;
  const only = [a, b].map((results) => metricsOf(results).size - rows.length);
  const notes = [
    `A: ${name(a)}; B: ${name(b)}. ${changeNote}`,
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
