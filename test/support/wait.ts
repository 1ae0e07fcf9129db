// Waiting in tests: for a condition, with a deadline; never for a length of time.

export type Deadline = {
  readonly deadlineMs: number;
  /** What is waited for, for the message of the error: `the segment is stored`. */
  readonly what: string;
  /** Pause between two looks; 20 ms unless told. */
  readonly everyMs?: number;
};

type Truthy<T> = Exclude<T, false | 0 | '' | null | undefined>;

/**
 * Settles with the first truthy value of `condition`. Rejects when the deadline passes, with the error that
 * the condition threw last, if any, as its cause: a condition that throws is one that does not hold yet.
 */
export async function until<T>(condition: () => T | Promise<T>, deadline: Deadline): Promise<Truthy<T>> {
  const endsAt = performance.now() + deadline.deadlineMs;
  let cause: unknown;
  for (;;) {
    try {
      const value = await within(Promise.resolve(condition()), endsAt - performance.now());
      if (value) return value as Truthy<T>;
      cause = undefined;
    } catch (error) {
      cause = error;
    }
    if (performance.now() >= endsAt) {
      throw new Error(`not within ${deadline.deadlineMs} ms: ${deadline.what}`, { cause });
    }
    await pause(deadline.everyMs ?? 20);
  }
}

/** Settles as `promise` does, or rejects after `ms`. Keeps the process alive meanwhile. */
export async function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${Math.round(ms)} ms`)), Math.max(ms, 1));
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((settle) => setTimeout(settle, ms));
}
