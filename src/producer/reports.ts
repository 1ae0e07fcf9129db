// What the library has to tell: refused records, dropped records, and what keeps it from sending. By callback and by
// event. Without a listener, as a warning of the process, one per minute of each kind.

import { EventEmitter } from 'node:events';
import { producerLimits as limits } from './limits.js';
import { type Operation, type QueuedRecord, readRecord } from './records.js';

/** A record that the service will never take, or that cannot be sent. */
export type Refusal = {
  readonly operation: Operation;
  /** As it was sent: with the names of the HTTP interface. */
  readonly record: Readonly<Record<string, unknown>>;
  /** One of the service's codes, such as `invalid_timestamp`. */
  readonly code: string;
  readonly message: string;
  /** Path of the field within the record. */
  readonly field?: string;
};

export type Dropped = {
  readonly count: number;
  readonly reason: 'queue_full' | 'closed' | 'deadline';
};

export type Problem = {
  /** A code of the service, of the operating system (`ECONNREFUSED`), or `http_` and a status. */
  readonly code: string;
  readonly message: string;
};

export type Reports = {
  readonly refused: Refusal;
  readonly dropped: Dropped;
  readonly problem: Problem;
};

export type ReportName = keyof Reports;

export type Reporter = {
  on<Name extends ReportName>(name: Name, listener: (report: Reports[Name]) => void): void;
  off<Name extends ReportName>(name: Name, listener: (report: Reports[Name]) => void): void;
  refuse(record: QueuedRecord, code: string, message: string, field?: string): void;
  tell<Name extends ReportName>(name: Name, report: Reports[Name]): void;
};

export function createReporter(): Reporter {
  const events = new EventEmitter();
  const warnedAt = new Map<string, number>();

  function tell<Name extends ReportName>(name: Name, report: Reports[Name]): void {
    if (events.listenerCount(name) === 0) return warn(name, report);
    for (const listener of events.listeners(name)) {
      // A listener's fault must not stop the sending.
      try {
        listener(report);
      } catch (error) {
        process.emitWarning(`a listener of ${name} failed: ${String(error)}`, 'SluiceWarning');
      }
    }
  }

  function warn(name: ReportName, report: Reports[ReportName]): void {
    const kind = 'code' in report ? `${name} ${report.code}` : `${name} ${report.reason}`;
    const last = warnedAt.get(kind);
    if (last !== undefined && performance.now() - last < limits.warnEveryMs) return;
    warnedAt.set(kind, performance.now());
    process.emitWarning(`${wordsOf(name, report)} Listen to '${name}' for more.`, 'SluiceWarning');
  }

  return {
    on: (name, listener) => void events.on(name, listener),
    off: (name, listener) => void events.off(name, listener),
    refuse(record, code, message, field) {
      const { operation } = record;
      const refusal = { operation, record: readRecord(record), code, message };
      tell('refused', field === undefined ? refusal : { ...refusal, field });
    },
    tell,
  };
}

/** Without the record: warnings end in logs, and logs hold no personal data. */
function wordsOf(name: ReportName, report: Reports[ReportName]): string {
  if ('reason' in report) return `${report.count} records were dropped (${report.reason}).`;
  const { code, message } = report;
  if (name === 'problem') return `Nothing can be sent now, and is tried again: ${code}: ${message}`;
  const { operation, field } = report as Refusal;
  return `A record of ${operation} was refused: ${code}${field === undefined ? '' : ` ${field}`}: ${message}`;
}
