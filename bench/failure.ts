// A run that failed for a reason of the service or of its options: the message is all there is to say.
export class BenchError extends Error {}
