// The report of the scenario `client`: bench/results/client.json holds every run, client.md the targets and figures.

import { clientLimits } from '../../src/client/core/limits.js';
import { figure, markdownTable, median, rangeText, type Table, tableOf, textTable } from '../figures.js';
import { describeInWords, type Machine } from '../machine.js';
import { type ClientRun, calls, tracksInARow, waitingMessages } from './runs.js';

export type ClientBuild = {
  readonly name: string;
  readonly bytes: { readonly raw: number; readonly gzipped: number };
  readonly runs: readonly ClientRun[];
};

export type ClientResults = {
  readonly machine: Machine;
  /** As on the command line. */
  readonly options: string;
  readonly browser: string;
  readonly snippetBytes: number;
  readonly own: ClientBuild;
  /** Another build, measured in turns with this one. */
  readonly other?: ClientBuild | undefined;
};

/** One figure of a build: the values of all runs, and a bound on their median in the target's unit. */
type Figure = {
  readonly what: string;
  readonly values: readonly number[];
  readonly target?: { readonly unit: string; readonly bound: number; readonly divide: number };
};

/** Bad values in an object cause one warning per key at first, to show which; then a single one for the rest. */
const warningsMax = (form: string): number =>
  form === 'an object of objects for properties' ? clientLimits.propertiesDroppedMax + 1 : 1;

function figuresOf({ bytes, runs }: ClientBuild): Figure[] {
  const of = (value: (run: ClientRun) => number | readonly number[]) => runs.flatMap(value);
  const atMost = (bound: number, unit: string, divide = 1) => ({ target: { unit, bound, divide } });
  const ofCalls = (queue: 'empty' | 'waiting', words: string) =>
    calls.flatMap((name): Figure[] => {
      const target = queue === 'waiting' ? atMost(1, ' ms', 1_000) : {};
      const what = `${name}, ${words}`;
      return [
        { what: `${what}, in a row, µs`, values: of((run) => run[queue][name].us), ...target },
        { what: `${what}, after a pause, µs`, values: of((run) => run[queue][name].apartUs), ...target },
        { what: `${what}, the longest in a row, µs`, values: of((run) => run[queue][name].longestUs) },
      ];
    });
  const forms = runs[0]?.large.map(({ form }) => form) ?? [];
  const waiting = `${figure(waitingMessages)} waiting`;
  const tracks = `${figure(tracksInARow)} tracks in a row`;
  return [
    { what: 'script, bytes', values: [bytes.raw] },
    { what: 'script, gzipped, bytes', values: [bytes.gzipped], ...atMost(12_000, ' bytes') },
    {
      what: 'from the start of the script until it records, nothing waiting, ms',
      values: of((run) => run.startMs.cold),
    },
    { what: `the same, ${waiting}, ms`, values: of((run) => run.startMs.waiting) },
    ...ofCalls('empty', 'nothing waiting'),
    ...ofCalls('waiting', waiting),
    { what: `${tracks}, ms`, values: of((run) => run.tracks.ms), ...atMost(1, ' s', 1_000) },
    {
      what: 'the longest task of them, until all are sent, ms',
      values: of((run) => run.tracks.longestTaskMs),
    },
    { what: 'the longest task of sending them, ms', values: of((run) => run.tracks.longestSendingMs) },
    {
      what: 'stored with an event that waits, beyond its properties, characters',
      values: of((run) => run.storedCharacters),
    },
    ...forms.flatMap((form): Figure[] => {
      const large = (value: 'ms' | 'warnings') =>
        of((run) => run.large.filter((found) => found.form === form).map((found) => found[value]));
      const what = `300,000 elements, ${form}`;
      return [
        { what: `${what}, ms`, values: large('ms'), ...atMost(50, ' ms') },
        { what: `${what}, warnings`, values: large('warnings'), ...atMost(warningsMax(form), '') },
      ];
    }),
  ];
}

function figureTable({ own, other }: ClientResults): Table {
  const others = new Map((other ? figuresOf(other) : []).map(({ what, values }) => [what, values]));
  return tableOf(figuresOf(own), [
    ['', ({ what }) => what],
    ['median', ({ values }) => median(values)],
    ['of the runs', ({ values }) => rangeText(values) ?? ''],
    ['before', ({ what }) => other && median(others.get(what) ?? [])],
    ['of the runs', ({ what }) => other && (rangeText(others.get(what) ?? []) ?? '')],
  ]);
}

function targetTable({ own }: ClientResults): Table {
  const targets = figuresOf(own).flatMap(({ what, values, target }) =>
    target === undefined
      ? []
      : [{ what: what.replace(/, (ms|µs|bytes)$/, ''), ...target, value: median(values) / target.divide }],
  );
  return tableOf(targets, [
    ['', ({ what }) => what],
    ['measured', ({ value, unit }) => `${figure(value)}${unit}`],
    ['target', ({ bound, unit }) => `at most ${figure(bound)}${unit}`],
    ['verdict', ({ value, bound }) => (value <= bound ? 'met' : 'missed')],
  ]);
}

/** For the terminal. */
export function clientSummary(results: ClientResults): string {
  return `${textTable(figureTable(results))}\n\n${textTable(targetTable(results))}\n`;
}

/** In Markdown. */
export function clientReport(results: ClientResults): string {
  const { machine, options, browser, snippetBytes, own, other } = results;
  const command = `npm run bench -- client${options === '' ? '' : ` ${options}`}`;
  return `${[
    '# What the client library costs a page',
    `Written by \`${command}\`: ${own.runs.length} rounds. ${browser}, headless. ${describeInWords(machine)}`,
    method,
    '## Targets',
    markdownTable(targetTable(results)),
    '## Figures',
    `The snippet of a usual page has ${snippetBytes} bytes.${other === undefined ? '' : ` ${beside}`}`,
    markdownTable(figureTable(results)),
  ].join('\n\n')}\n`;
}

const method = `Each page has a new visitor and a clock with microseconds. An event has four properties. "In a row" is the mean of
40 calls; "after a pause" is one call after 1.2 s, when caches are cold. Each call sets another value, and each \`identify\` another
identity, so that a new user and session begin. "Nothing waiting" starts with an empty queue and a server that accepts everything;
with messages waiting the server asks to wait. Each page compiles and starts the script again. Warnings are counted, not shown.
Times are absolute: other programs on the machine make all of them longer.`;

const beside = `"Before" is another build of the script, measured in turns with this one.`;
