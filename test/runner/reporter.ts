// The reporter in the process of a test file: writes each event as one line, for the process that runs all files.

import { readFileSync } from 'node:fs';
import { inspect } from 'node:util';

/** An event of node:test, or `end`: the last line of a file that ran to its end. */
export type TestEvent = { readonly type: string; readonly data: EventData };

export type EventData = {
  readonly name?: string;
  readonly nesting?: number;
  readonly message?: string;
  readonly file?: string;
  readonly line?: number;
  readonly column?: number;
  readonly skip?: string | boolean;
  readonly todo?: string | boolean;
  readonly details?: {
    readonly duration_ms?: number;
    readonly type?: string;
    readonly error?: { readonly failureType?: string; readonly text?: string };
  };
  /** In `end`: the CPU time of the file and of the processes that it waited for, where the system provides it. */
  readonly cpuSeconds?: number;
};

type Reported = {
  readonly type: string;
  readonly data: EventData & {
    readonly details?: { readonly error?: Error & { readonly code?: string; readonly failureType?: string } };
  };
};

export default async function* report(source: AsyncIterable<Reported>): AsyncGenerator<string> {
  for await (const event of source) yield line(plain(event));
  yield line({ type: 'end', data: { cpuSeconds: cpuSeconds() } });
}

function line(event: TestEvent): string {
  return `${JSON.stringify(event)}\n`;
}

/** The event with the text of an error in place of the error. */
function plain({ type, data }: Reported): TestEvent {
  const error = data.details?.error;
  if (error === undefined) return { type, data };
  const text = inspect(error.code === 'ERR_TEST_FAILURE' ? error.cause : error, { breakLength: 110 });
  const failureType = error.failureType;
  return { type, data: { ...data, details: { ...data.details, error: { failureType, text } } } };
}

/** The CPU time of this process and of its children that have ended. */
export function cpuSeconds(): number | undefined {
  if (process.platform !== 'linux') return undefined;
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1]?.split(' ') ?? [];
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / 100;
}
