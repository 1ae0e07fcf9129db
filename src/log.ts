// Owns logging: one JSON line an entry on stderr, no personal data. Callers pass fields from a closed set
// (segment numbers, counts, codes, durations); identities, bodies, keys and tokens are never passed in.

import { type Logger, pino } from 'pino';

export type Log = Logger;

/** Makes the logger of one process. `role` says which kind of process it is. */
export function createLog(role: string, level: string): Log {
  return pino(
    {
      level,
      base: { role, pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { error: (error: unknown) => (error instanceof Error ? describeError(error) : error) },
      redact: { paths: ['*.authorization', '*.password', '*.token', '*.api_key'], censor: '[redacted]' },
    },
    destination(),
  );
}

/** Bytes of entries that are kept while they cannot be written; later ones are dropped. */
const unwrittenBytesMax = 1024 * 1024;

/** A log that cannot be written, for its disk is full or its reader gone, must not end the process. */
function destination(): ReturnType<typeof pino.destination> {
  const stderr = pino.destination({ dest: 2, sync: true, maxLength: unwrittenBytesMax });
  stderr.on('error', () => undefined);
  return stderr;
}

/**
 * What may be logged of an error: its class, code and message. Of ClickHouse's, the name of the code instead of
 * the message, which quotes the data that it could not read.
 */
export function describeError(error: unknown): { name: string; code?: string; message: string } {
  if (!(error instanceof Error)) return { name: 'unknown', message: 'something that is no error was thrown' };
  const { code, type } = error as { code?: unknown; type?: unknown };
  const { name } = error.constructor;
  return {
    name,
    ...(typeof code === 'string' || typeof code === 'number' ? { code: String(code) } : {}),
    message: name === 'ClickHouseError' ? String(type ?? 'unknown') : error.message.slice(0, 500),
  };
}
