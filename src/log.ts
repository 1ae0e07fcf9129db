// Owns logging: each entry is one JSON line on stderr, without personal data. Callers pass fields from a closed set
// (segment numbers, counts, codes, durations), never identities, bodies, keys or tokens.

import { logs } from './contract/limits.js';
import { type Logger, pino } from './packages/pino.js';

export type Log = Logger;

/** Makes the logger of one process. `role` says which kind of process it is. */
export function createLog(role: string, level: string): Log {
  return pino(
    {
      level,
      base: { role, pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { error: describeError },
      redact: { paths: ['*.authorization', '*.password', '*.token', '*.api_key'], censor: '[redacted]' },
    },
    destination(),
  );
}

/** A log that cannot be written, because its disk is full or its reader is gone, must not end the process. */
function destination(): ReturnType<typeof pino.destination> {
  const stderr = pino.destination({ dest: 2, sync: true, maxLength: logs.unwrittenBytesMax });
  stderr.on('error', () => undefined);
  return stderr;
}

/**
 * What may be logged of an error: its class, code and message. For ClickHouse's errors, the name of the code instead of
 * the message, since the message quotes the data that could not be read.
 */
export function describeError(error: unknown): { name: string; code?: string; message: string } {
  if (!(error instanceof Error))
    return { name: 'unknown', message: 'something that is not an error was thrown' };
  const { code, type } = error as { code?: unknown; type?: unknown };
  const { name } = error.constructor;
  return {
    name,
    ...(typeof code === 'string' || typeof code === 'number' ? { code: String(code) } : {}),
    message: name === 'ClickHouseError' ? String(type ?? 'unknown') : withoutQuotes(name, error.message),
  };
}

/** For work that is tried again and again: logs an error once, until another one follows or `forget` says that the work succeeded. */
export function reportOnce(log: Log, words: string) {
  let reported = '';
  return {
    report: (error: unknown) => {
      const { message } = describeError(error);
      if (message !== reported) log.warn({ error }, words);
      reported = message;
    },
    forget: () => {
      reported = '';
    },
  };
}

/** Removes quoted data: JSON.parse quotes the text that it refuses, and Redis the arguments of a command that it does not know. */
function withoutQuotes(name: string, message: string): string {
  if (name === 'SyntaxError') return 'a text is malformed';
  return message.replace(/, with args beginning with:.*/s, '').slice(0, logs.messageMax);
}
