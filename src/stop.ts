// Notices when the process should end: on SIGTERM, on SIGINT, or when the supervisor that started it is gone.

/** Settles at the first request to stop. A second one ends the process at once. */
export function stopRequested(): Promise<void> {
  return new Promise((resolve) => {
    let asked = false;
    const stop = () => {
      if (asked) process.exit(1);
      asked = true;
      resolve();
    };
    process.on('SIGTERM', stop);
    process.on('SIGINT', stop);
    if (process.channel !== undefined) process.on('disconnect', () => (asked ? undefined : stop()));
  });
}
