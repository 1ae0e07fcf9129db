// What the scenario `client` prints and writes: bench/results/client.json with every run, and client.md with the figures
// of its targets.

import { clientLimits } from '../../src/client/core/limits.js';
import { figure, markdownTable, median, textTable } from '../figures.js';
import { describeInWords, type Machine } from '../machine.js';
import { type Call, type ClientRun, calls, tracksInARow, waitingMessages } from './runs.js';

export type ClientBuild = {
  readonly name: string;
  readonly bytes: { readonly raw: number; readonly gzipped: number };
  readonly runs: readonly ClientRun[];
};

export type ClientResults = {
  readonly machine: Machine;
  /** As given on the command line. */
  readonly options: string;
  readonly browser: string;
  readonly snippetBytes: number;
  readonly own: ClientBuild;
  /** Another build, measured in turns with this one. */
  readonly other?: ClientBuild | undefined;
};

export type ClientTarget = {
  readonly what: string;
  readonly unit: string;
  readonly value: number;
  readonly bound: number;
  readonly met: boolean;
};

/** Bad values in an object cause one warning per key at first, so that the developer sees which; then a single one. */
const warningsMax = (form: string): number =>
  form === 'an object of objects for properties' ? clientLimits.propertiesDroppedMax + 1 : 1;

/** Of the build itself; medians of the runs. */
export function clientTargets({ own }: ClientResults): ClientTarget[] {
  const waiting = `with ${figure(waitingMessages)} waiting`;
  const forms = own.runs[0]?.large.map(({ form }) => form) ?? [];
  const large = (form: string, value: (found: ClientRun['large'][number]) => number) =>
    medianOf(own, (run) => run.large.filter((found) => found.form === form).map(value));
  return [
    target('script, gzipped', ' bytes', own.bytes.gzipped, 12_000),
    ...calls.flatMap((name) => [
      target(`${name} ${waiting}, in a row`, ' ms', callUs(own, 'waiting', name, inARow) / 1000, 1),
      target(`${name} ${waiting}, after a pause`, ' ms', callUs(own, 'waiting', name, apart) / 1000, 1),
    ]),
    target(
      `${figure(tracksInARow)} tracks in a row`,
      ' s',
      medianOf(own, ({ tracks }) => [tracks.ms]) / 1000,
      1,
    ),
    ...forms.flatMap((form) => [
      target(
        `300,000 elements, ${form}`,
        ' ms',
        large(form, ({ ms }) => ms),
        50,
      ),
      target(
        `300,000 elements, ${form}: warnings`,
        '',
        large(form, ({ warnings }) => warnings),
        warningsMax(form),
      ),
    ]),
  ];
}

function target(what: string, unit: string, value: number, bound: number): ClientTarget {
  return { what, unit, value, bound, met: value <= bound };
}

const inARow = ({ us }: ClientRun['empty'][Call]): readonly number[] => [us];
const apart = ({ apartUs }: ClientRun['empty'][Call]): readonly number[] => apartUs;
const longest = ({ longestUs }: ClientRun['empty'][Call]): readonly number[] => [longestUs];

function callUs(
  build: ClientBuild,
  queue: 'empty' | 'waiting',
  name: Call,
  values: (found: ClientRun['empty'][Call]) => readonly number[],
): number {
  return medianOf(build, (run) => values(run[queue][name]));
}

function medianOf({ runs }: ClientBuild, values: (run: ClientRun) => readonly number[]): number {
  return median(runs.flatMap(values));
}

/** Every figure of a build as a row: its name, and the median, minimum and maximum of the runs. */
function figureRows(build: ClientBuild): (readonly [what: string, values: readonly number[]])[] {
  const of = (what: string, value: (run: ClientRun) => readonly number[]) =>
    [what, build.runs.flatMap(value)] as const;
  const ofCalls = (queue: 'empty' | 'waiting', words: string) =>
    calls.flatMap((name) => [
      of(`${name}, ${words}, in a row, µs`, (run) => inARow(run[queue][name])),
      of(`${name}, ${words}, after a pause, µs`, (run) => apart(run[queue][name])),
      of(`${name}, ${words}, the longest in a row, µs`, (run) => longest(run[queue][name])),
    ]);
  const forms = build.runs[0]?.large.map(({ form }) => form) ?? [];
  const ofForm = (form: string, value: (found: ClientRun['large'][number]) => number) => (run: ClientRun) =>
    run.large.filter((found) => found.form === form).map(value);
  return [
    ['script, bytes', [build.bytes.raw]],
    ['script, gzipped, bytes', [build.bytes.gzipped]],
    of('from the start of the script until it records, nothing waiting, ms', (run) => [run.startMs.cold]),
    of(`the same, ${figure(waitingMessages)} waiting, ms`, (run) => [run.startMs.waiting]),
    ...ofCalls('empty', 'nothing waiting'),
    ...ofCalls('waiting', `${figure(waitingMessages)} waiting`),
    of(`${figure(tracksInARow)} tracks in a row, ms`, ({ tracks }) => [tracks.ms]),
    of('the longest task of them, until all are sent, ms', ({ tracks }) => [tracks.longestTaskMs]),
    of('the longest task of sending them, ms', ({ tracks }) => [tracks.longestSendingMs]),
    of('stored with an event that waits, beyond its properties, characters', (run) => [run.storedCharacters]),
    ...forms.flatMap((form) => [
      of(
        `300,000 elements, ${form}, ms`,
        ofForm(form, ({ ms }) => ms),
      ),
      of(
        `300,000 elements, ${form}, warnings`,
        ofForm(form, ({ warnings }) => warnings),
      ),
    ]),
  ];
}

function figureTable({ own, other }: ClientResults): { head: string[]; rows: string[][] } {
  const others = new Map(other === undefined ? [] : figureRows(other));
  const cells = (values: readonly number[] = []) => [
    figure(median(values)),
    values.length < 2 ? '' : `${figure(Math.min(...values))} to ${figure(Math.max(...values))}`,
  ];
  return {
    head: ['', 'median', 'of the runs', ...(other === undefined ? [] : ['before', 'of the runs'])],
    rows: figureRows(own).map(([what, values]) => [
      what,
      ...cells(values),
      ...(other === undefined ? [] : cells(others.get(what))),
    ]),
  };
}

function targetTable(results: ClientResults): { head: string[]; rows: string[][] } {
  return {
    head: ['', 'measured', 'target', ''],
    rows: clientTargets(results).map(({ what, unit, value, bound, met }) => [
      what,
      `${figure(value)}${unit}`,
      `at most ${figure(bound)}${unit}`,
      met ? 'met' : 'missed',
    ]),
  };
}

/** For the terminal. */
export function clientSummary(results: ClientResults): string {
  const [figures, targets] = [figureTable(results), targetTable(results)];
  return `${textTable(figures.head, figures.rows)}\n\n${textTable(targets.head, targets.rows)}\n`;
}

/** In Markdown. */
export function clientReport(results: ClientResults): string {
  const { machine, options, browser, snippetBytes, own, other } = results;
  const command = `npm run bench -- client${options === '' ? '' : ` ${options}`}`;
  const [figures, targets] = [figureTable(results), targetTable(results)];
  return `${[
    '# What the client library costs a page',
    `Written by \`${command}\`: ${own.runs.length} rounds. ${browser}, headless. ${describeInWords(machine)}`,
    method,
    '## Targets',
    markdownTable(targets.head, targets.rows),
    '## Figures',
    `The snippet of a usual page has ${snippetBytes} bytes.${other === undefined ? '' : ` ${beside}`}`,
    markdownTable(figures.head, figures.rows),
  ].join('\n\n')}\n`;
}

const method = `Each round has pages of new visitors, with a clock of microseconds. An event has four properties. "In a row" is the mean of
40 calls, "after a pause" one call after 1.2 s, when nothing of the call before is warm. Each sets another
value, and \`identify\` another identity, so a user and a session begin. "Nothing waiting" begins with an empty queue and a
server that takes everything; with messages waiting the server asks to wait. The start is compiled and run anew in each
page. Warnings are counted, not shown. Times are absolute: on a machine that others use all of them are longer.`;

const beside = `"Before" is another build of the script, measured in turns with this one and under the same load.`;
