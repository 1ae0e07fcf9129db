// Failures of runs, and their messages.

/** A failure of the service or the options, of which the message says all that a reader needs. */
export class BenchError extends Error {}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The message; if the bench itself has a bug, with the stack. */
export function describeFailure(error: unknown): string {
  if (error instanceof BenchError || !(error instanceof Error)) return messageOf(error);
  return error.stack ?? error.message;
}
