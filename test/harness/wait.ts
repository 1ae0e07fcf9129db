// Tests wait for a condition with a deadline, never for a length of time.

export type Wait = {
  /** The condition in words, for the error message: `the segment is stored`. */
  readonly what: string;
  /** By default two minutes, which is more than a slow machine needs for anything. */
  readonly deadlineMs?: number;
  /**
   * Pause between two checks. By default a tenth of the time that has passed, from 20 to 250 ms, or nine times as long as the check took,
   * up to half a second, if that is longer: so waiting leaves the CPU to what it waits for.
   */
  readonly everyMs?: number;
};

const usualMsMax = 120_000;

type Truthy<T> = Exclude<T, false | 0 | '' | null | undefined>;

/**
 * Settles with the first truthy value of `condition`. A condition that throws does not hold yet. Rejects when the
 * deadline passes; the last error that the condition threw is the cause.
 */
export async function until<T>(condition: () => T | Promise<T>, wait: string | Wait): Promise<Truthy<T>> {
  const { what, deadlineMs = usualMsMax, everyMs }: Wait = typeof wait === 'string' ? { what: wait } : wait;
  const startedAt = performance.now();
  const endsAt = startedAt + deadlineMs;
  let cause: unknown;
  for (;;) {
    const checkedAt = performance.now();
    try {
      const value = await within(Promise.resolve(condition()), endsAt - performance.now());
      if (value) return value as Truthy<T>;
      cause = undefined;
    } catch (error) {
      cause = error;
    }
    if (performance.now() >= endsAt) {
      throw new Error(`not within ${deadlineMs} ms: ${what}`, { cause });
    }
    const now = performance.now();
    const byTime = Math.min(Math.max((now - startedAt) / 10, 20), 250);
    const byCost = Math.min(9 * (now - checkedAt), 500);
    await pause(everyMs ?? Math.max(byTime, byCost));
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

/** A promise that is fulfilled when `open` is called. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
