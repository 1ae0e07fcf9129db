// A run that failed for a reason of the service or of its options: the message is all there is to say.
export class BenchError extends Error {}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The message; of an error of the bench itself also where it comes from. */
export function describeFailure(error: unknown): string {
  if (error instanceof BenchError || !(error instanceof Error)) return messageOf(error);
  return error.stack ?? error.message;
}
