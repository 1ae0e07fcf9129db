// The report of the scenario `client`: bench/results/client.json holds every run, client.md the targets and figures.

import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { figure, markdownTable, median, tableOf, textTable } from '../figures.js';
import { describeInWords, type Machine } from '../machine.js';
import { atMost, targetNote, targetTable } from '../report/targets.js';
import { type ClientRun, calls, tracksInARow, waitingMessages } from './runs.js';

export type ClientResults = {
  readonly machine: Machine;
  readonly browser: string;
  readonly snippetBytes: number;
  readonly own: {
    readonly bytes: { readonly raw: number; readonly gzipped: number };
    readonly runs: readonly ClientRun[];
  };
};

/** The values of all runs, and perhaps a bound of their median in the same unit. */
type Figure = readonly [what: string, unit: string, values: readonly number[], bound?: number];

/** How many warnings are allowed: one for each of the first bad values in an object, and one for the rest. */
const warningsMax = (form: string): number =>
  form === 'an object of objects for properties' ? clientLimits.propertiesDroppedMax + 1 : 1;

function figuresOf({ bytes, runs }: ClientResults['own']): Figure[] {
  const of = (value: (run: ClientRun) => number) => runs.map(value);
  const ofCalls = (queue: 'empty' | 'waiting', words: string, bound?: number) =>
    calls.flatMap((name): Figure[] => [
      [`${name}, ${words}, in a row`, 'µs', of((run) => run[queue][name].us), bound],
      [`${name}, ${words}, after a pause`, 'µs', of((run) => median(run[queue][name].apartUs)), bound],
      [`${name}, ${words}, the longest in a row`, 'µs', of((run) => run[queue][name].longestUs)],
    ]);
  const forms = runs[0]?.large.map(({ form }) => form) ?? [];
  const waiting = `${figure(waitingMessages)} waiting`;
  const start = 'from the start of the script until it records, nothing waiting';
  const stored = 'stored with an event that waits, beyond its properties';
  return [
    ['script', 'bytes', [bytes.raw]],
    ['script, gzipped', 'bytes', [bytes.gzipped], 13_312],
    [start, 'ms', of((run) => run.startMs.cold)],
    [`the same, ${waiting}`, 'ms', of((run) => run.startMs.waiting)],
    ...ofCalls('empty', 'nothing waiting'),
    ...ofCalls('waiting', waiting, 1_000),
    [`${figure(tracksInARow)} tracks in a row`, 'ms', of((run) => run.tracks.ms), 1_000],
    ['the longest task of them, until all are sent', 'ms', of((run) => run.tracks.longestTaskMs)],
    [stored, 'characters', of((run) => run.storedCharacters)],
    ...forms.flatMap((form, index): Figure[] => {
      const large = (value: 'ms' | 'warnings') => of((run) => run.large[index]?.[value] ?? Number.NaN);
      const what = `300,000 elements, ${form}`;
      return [
        [what, 'ms', large('ms'), 50],
        [what, 'warnings', large('warnings'), warningsMax(form)],
      ];
    }),
  ];
}

function tablesOf({ own }: ClientResults) {
  const all = figuresOf(own);
  // The size of the script does not vary, so it counts as measured in every run.
  const sized = { runs: own.runs.length };
  const targets = all.flatMap(([what, unit, values, bound]) =>
    bound === undefined ? [] : atMost(what, ` ${unit}`, bound, values, values.length === 1 ? sized : {}),
  );
  const figures = tableOf(all, [
    ['', ([what, unit]) => `${what}, ${unit}`],
    ['median', ([, , values]) => values],
    ['runs', ([, , values]) => values.length],
  ]);
  return { targets: targetTable(targets), figures };
}

export function clientSummary(results: ClientResults): string {
  const { targets, figures } = tablesOf(results);
  return `${textTable(figures)}\n\n${textTable(targets)}\n`;
}

export function clientReport(results: ClientResults): string {
  const { machine, browser, snippetBytes, own } = results;
  const { targets, figures } = tablesOf(results);
  return `${[
    '# What the client library costs a page',
    `Written by \`npm run bench -- client\`: ${own.runs.length} rounds. ${browser}, headless. ${describeInWords(machine)}`,
    method,
    '## Targets',
    targetNote,
    markdownTable(targets),
    '## Figures',
    `The snippet of a usual page has ${snippetBytes} bytes.`,
    markdownTable(figures),
  ].join('\n\n')}\n`;
}

const method = `Each page has a new visitor and a clock with microseconds. An event has four properties. "In a row" is the mean of
40 calls; "after a pause" is the middle of three calls, each after 1.2 s, when caches are cold. Each call sets another value, and each
\`identify\` another identity, so that a new user and session begin. "Nothing waiting" starts with an empty queue and a server that
accepts everything; with messages waiting the server asks to wait. Each page compiles and starts the script again. Warnings are
counted, not shown. Times are absolute: other programs on the machine make all of them longer.`;
