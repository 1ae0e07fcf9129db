// The report of a run in the format of node:test's own reporter `spec`: each file with its tests and its time, then the failures, the
// slowest files and the counts.

import { spec } from 'node:test/reporters';
import { inspect } from 'node:util';
import type { EventData, TestEvent } from './reporter.js';
import type { FileResult } from './test-file.js';

const slowestShown = 10;
const isCount = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

export type Report = {
  /** Prints what happened in one file. */
  add(result: FileResult): void;
  /** Prints the end of the report; then settles with whether everything passed. */
  end(seconds: number): Promise<boolean>;
};

type Counts = Record<'tests' | 'suites' | 'pass' | 'fail' | 'cancelled' | 'skipped' | 'todo', number>;

export function createReport(write: (text: string) => void): Report {
  const reporter = new spec();
  reporter.on('data', (text: string | Buffer) => write(String(text)));
  const results: FileResult[] = [];
  const counts: Counts = { tests: 0, suites: 0, pass: 0, fail: 0, cancelled: 0, skipped: 0, todo: 0 };

  return {
    add(result) {
      results.push(result);
      for (const event of eventsOf(result)) reporter.write(event);
      for (const event of result.events) count(counts, event);
      // An error outside of the tests counts as one failed test.
      if (result.fault !== undefined) {
        counts.tests += 1;
        counts.fail += 1;
      }
    },
    async end(seconds) {
      await new Promise<void>((settle) => {
        reporter.once('end', settle);
        reporter.end();
      });
      write(slowest(results));
      for (const [name, value] of Object.entries(counts)) write(`ℹ ${name} ${value}\n`);
      write(`ℹ duration_ms ${Math.round(seconds * 1_000)}\n`);
      return counts.fail + counts.cancelled === 0;
    },
  };
}

/** Events that show the tests of a file as subtests of one test, whose time is that of the file. */
function eventsOf(result: FileResult): TestEvent[] {
  const name = result.path.replace(/^dist\//, '').replace(/\.js$/, '.ts');
  const shown = result.events.filter(isShown).map((event) => ({
    type: event.type,
    data: shownData(event.data),
  }));
  const output = result.output === '' ? [] : [{ type: 'test:stdout', data: { message: result.output } }];
  const failed = result.fault !== undefined || result.events.some(({ type }) => type === 'test:fail');
  const duration_ms = Math.round(result.seconds * 1_000);
  const cpu =
    result.cpuSeconds === undefined
      ? []
      : [
          {
            type: 'test:diagnostic',
            data: { nesting: 1, message: `CPU ${result.cpuSeconds.toFixed(1)} s` },
          },
        ];
  const error = result.fault === undefined ? { failureType: 'subtestsFailed' } : errorShownAs(result.fault);
  return [
    { type: 'test:start', data: { name, nesting: 0 } },
    ...shown,
    ...output,
    ...cpu,
    {
      type: failed ? 'test:fail' : 'test:pass',
      data: {
        name,
        nesting: 0,
        file: result.path,
        line: 1,
        column: 1,
        details: { duration_ms, ...(failed ? { error } : {}) },
      },
    },
  ];
}

/** Leaves out the counts with which each process ends its own report. */
function isShown({ type, data }: TestEvent): boolean {
  if (type === 'test:diagnostic') return data.nesting !== 0 || !isCount.test(data.message ?? '');
  return type === 'test:start' || type === 'test:pass' || type === 'test:fail';
}

function shownData(data: EventData): EventData {
  const error = data.details?.error;
  const nesting = (data.nesting ?? 0) + 1;
  if (error === undefined) return { ...data, nesting };
  const shown = { ...errorShownAs(error.text ?? ''), failureType: error.failureType };
  return { ...data, nesting, details: { ...data.details, error: shown } };
}

/** An error that `spec`, which inspects errors, shows as this text. */
function errorShownAs(text: string): { readonly text: string } {
  return { text, [inspect.custom]: () => text } as { readonly text: string };
}

function count(counts: Counts, { type, data }: TestEvent): void {
  if (type !== 'test:pass' && type !== 'test:fail') return;
  if (data.details?.type === 'suite') {
    counts.suites += 1;
    return;
  }
  counts.tests += 1;
  if (isSet(data.skip)) counts.skipped += 1;
  else if (isSet(data.todo)) counts.todo += 1;
  else if (data.details?.error?.failureType === 'cancelledByParent') counts.cancelled += 1;
  else if (type === 'test:fail') counts.fail += 1;
  else counts.pass += 1;
}

/** A test may be skipped with an empty reason. */
function isSet(mark: string | boolean | undefined): boolean {
  return mark !== undefined && mark !== false;
}

function slowest(results: readonly FileResult[]): string {
  if (results.length < 2) return '';
  const lines = [...results]
    .sort((a, b) => b.seconds - a.seconds)
    .slice(0, slowestShown)
    .map(({ path, seconds, cpuSeconds }) => {
      const cpu = cpuSeconds === undefined ? '' : `${cpuSeconds.toFixed(1)} s`;
      return `  ${seconds.toFixed(1).padStart(6)} s  ${cpu.padStart(8)}  ${path.replace(/^dist\//, '')}\n`;
    });
  return `\nslowest files: seconds, of the CPU, file\n${lines.join('')}\n`;
}
