// Prints the progress of a session, each line with the time since the start.

const everyMs = 2_000;

export type Progress = ReturnType<typeof createProgress>;

export function createProgress(write: (line: string) => void) {
  const startedAt = performance.now();
  const say = (text: string) => {
    const seconds = Math.floor((performance.now() - startedAt) / 1000);
    const time = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
    write(`${time.padStart(6)}  ${text}\n`);
  };
  /** Does `work`, and prints `what: text()` every two seconds until it is done. */
  const during = async <Result>(what: string, text: () => string, work: () => Promise<Result>) => {
    const timer = setInterval(() => say(`  ${what}: ${text()}`), everyMs);
    try {
      return await work();
    } finally {
      clearInterval(timer);
    }
  };
  return { say, during };
}
