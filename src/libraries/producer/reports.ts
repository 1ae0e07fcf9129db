// What the library reports: refused records, fields that it does not know, dropped records, and what currently keeps it from sending.
// Reports go to callbacks and events. Without a listener they become warnings of the process: one per minute and kind, with the number of
// records.

import { EventEmitter } from 'node:events';
import { producerLimits as limits } from './limits.js';
import { type Operation, type QueuedRecord, readRecord } from './records.js';

/** A record that the service will never accept, or that cannot be sent. */
export type Refusal = {
  readonly operation: Operation;
  /** The record as it was sent, under the names of the HTTP interface; if it cannot be sent, the readable fields of the call. */
  readonly record: Readonly<Record<string, unknown>>;
  /** One of the service's codes, such as `invalid_timestamp`. */
  readonly code: string;
  readonly message: string;
  /** Path of the field within the record. */
  readonly field?: string;
};

/** A call had fields that its operation does not have. Its record was sent without these fields. */
export type Ignored = {
  readonly operation: Operation;
  readonly fields: readonly string[];
};

export type Dropped = {
  readonly count: number;
  readonly reason: 'queue_full' | 'closed' | 'deadline';
};

export type Problem = {
  /** A code of the service or of the operating system (`ECONNREFUSED`), or `http_` and a status. */
  readonly code: string;
  readonly message: string;
  /** For `rate_limited`: the limit that was reached, such as `bulk_app`. */
  readonly limit?: string;
};

export type Reports = {
  readonly refused: Refusal;
  readonly ignored: Ignored;
  readonly dropped: Dropped;
  readonly problem: Problem;
};

export type ReportName = keyof Reports;
type NamedReport = {
  [Name in ReportName]: { readonly name: Name; readonly report: Reports[Name] };
}[ReportName];

export type Reporter = ReturnType<typeof createReporter>;
type Listener<Name extends ReportName> = (report: Reports[Name]) => void;

/** The reports of one kind. `count`: how many of them were not printed yet. */
type Warning = { last: NamedReport; count: number; dueAt: number };

export function createReporter() {
  const events = new EventEmitter();
  const warnings = new Map<string, Warning>();
  let timer: NodeJS.Timeout | undefined;

  function tell<Name extends ReportName>(name: Name, report: Reports[Name]): void {
    if (events.listenerCount(name) === 0) return warn({ name, report } as NamedReport);
    for (const listener of events.listeners(name)) {
      // A listener that throws must not stop the sending.
      try {
        listener(report);
      } catch (error) {
        process.emitWarning(`a listener of ${name} failed: ${String(error)}`, 'SluiceWarning');
      }
    }
  }

  function warn(report: NamedReport): void {
    const own = kindOf(report);
    const kind = warnings.has(own) || warnings.size < limits.warnKindsMax ? own : report.name;
    const warning = warnings.get(kind) ?? {
      last: report,
      count: 0,
      dueAt: performance.now() + limits.warnGatherMs,
    };
    warnings.set(kind, warning);
    const isFirst = warning.count === 0;
    warning.last = report;
    warning.count += report.name === 'dropped' ? report.report.count : 1;
    if (isFirst) wait();
  }

  /** Prints the warnings that are due; on the last call, all of them. */
  function print(isLast: boolean): void {
    const now = performance.now();
    for (const [kind, warning] of warnings) {
      if (warning.dueAt > now && !isLast) continue;
      if (warning.count === 0) {
        warnings.delete(kind);
        continue;
      }
      const { last, count } = warning;
      process.emitWarning(`${wordsOf(last, count)} Listen to '${last.name}' for more.`, 'SluiceWarning');
      warning.count = 0;
      warning.dueAt = now + limits.warnEveryMs;
    }
    wait();
  }

  /** Schedules the next printing. If the process ends by itself, the remaining reports are printed first. */
  function wait(): void {
    clearTimeout(timer);
    timer = undefined;
    process.removeListener('beforeExit', printAll);
    if (warnings.size === 0) return;
    const dueAt = Math.min(...Array.from(warnings.values(), (warning) => warning.dueAt));
    timer = setTimeout(() => print(false), Math.max(0, Math.ceil(dueAt - performance.now()))).unref();
    if (Array.from(warnings.values()).some(({ count }) => count > 0)) process.once('beforeExit', printAll);
  }

  const printAll = (): void => print(true);

  return {
    on: <Name extends ReportName>(name: Name, listener: Listener<Name>) => void events.on(name, listener),
    off: <Name extends ReportName>(name: Name, listener: Listener<Name>) => void events.off(name, listener),
    refuse(record: QueuedRecord, code: string, message: string, field?: string): void {
      const { operation } = record;
      const refusal = { operation, record: readRecord(record), code, message };
      tell('refused', field === undefined ? refusal : { ...refusal, field });
    },
    tell,
    /** Prints the reports that were not printed yet. Settles when that is done, so that the process may end. */
    async finish(): Promise<void> {
      // Dropped records are reported in the next turn of the event loop, and Node prints a warning in the turn after that.
      await new Promise((settle) => setImmediate(settle));
      printAll();
      await new Promise((settle) => setImmediate(settle));
    },
  };
}

function kindOf({ name, report }: NamedReport): string {
  switch (name) {
    case 'refused':
      return `${name} ${report.operation} ${report.code} ${report.field ?? ''}`;
    case 'ignored':
      return `${name} ${report.operation} ${report.fields.join()}`;
    case 'dropped':
      return `${name} ${report.reason}`;
    case 'problem':
      return `${name} ${report.code} ${report.limit ?? ''}`;
  }
}

/** The text of a warning. It contains no record, since warnings end up in logs, which must hold no personal data. */
function wordsOf({ name, report }: NamedReport, count: number): string {
  const records = count === 1 ? '1 record' : `${count} records`;
  switch (name) {
    case 'refused': {
      const { operation, code, field, message } = report;
      return `${records} of ${operation} refused: ${code}${field === undefined ? '' : ` ${field}`}: ${message}`;
    }
    case 'ignored':
      return `${records} of ${report.operation} sent without unknown fields: ${report.fields.join(', ')}.`;
    case 'dropped':
      return `${records} dropped (${report.reason}).`;
    case 'problem':
      return `Records wait, and are sent later: ${report.code}: ${report.message}`;
  }
}
