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
      serializers: { error: describeError },
      redact: { paths: ['*.authorization', '*.password', '*.token', '*.api_key'], censor: '[redacted]' },
    },
    pino.destination({ dest: 2, sync: true }),
  );
}

/** What may be logged of an error: its class, code and message; never its `cause` chain's data. */
export function describeError(error: unknown): { name: string; code?: string; message: string } {
  if (!(error instanceof Error)) return { name: 'unknown', message: String(error) };
  const code = (error as { code?: unknown }).code;
  return {
    name: error.name,
    ...(typeof code === 'string' || typeof code === 'number' ? { code: String(code) } : {}),
    message: error.message.slice(0, 500),
  };
}
