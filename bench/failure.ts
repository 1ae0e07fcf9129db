// A run that failed because of the service or of its options: the message says everything.
export class BenchError extends Error {}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The message; for an error of the bench itself also the stack. */
export function describeFailure(error: unknown): string {
  if (error instanceof BenchError || !(error instanceof Error)) return messageOf(error);
  return error.stack ?? error.message;
}
