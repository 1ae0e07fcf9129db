// Failures of runs, and their messages.

/** The service or the options are at fault; the message says all a reader needs. */
export class BenchError extends Error {}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The message; for a bug of the bench the stack too. */
export function describeFailure(error: unknown): string {
  if (error instanceof BenchError || !(error instanceof Error)) return messageOf(error);
  return error.stack ?? error.message;
}
