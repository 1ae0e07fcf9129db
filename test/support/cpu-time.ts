// How much of the CPU a piece of work takes, which a busy machine changes less than how long it lasts.

/** Milliseconds of CPU that this process has taken. The kernel knows only the sum of user and system time exactly. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Milliseconds of CPU that the fastest of three calls takes. */
export function fastestMs(act: () => unknown): number {
  const took = [1, 2, 3].map(() => {
    const from = cpuMs();
    act();
    return cpuMs() - from;
  });
  return Math.min(...took);
}
