// The progress that a session prints: a line for each beginning and end, and every two seconds a line in between.

const everyMs = 2_000;

export type Progress = {
  say(text: string): void;
  /** Prints `what: text()` every two seconds until `end`. */
  watch(what: string, text: () => string): { end(): void };
};

export function createProgress(write: (line: string) => void): Progress {
  const startedAt = performance.now();
  const say = (text: string) => {
    const seconds = Math.floor((performance.now() - startedAt) / 1000);
    const time = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
    write(`${time.padStart(6)}  ${text}\n`);
  };
  return {
    say,
    watch: (what, text) => {
      const timer = setInterval(() => say(`  ${what}: ${text()}`), everyMs);
      timer.unref();
      return { end: () => clearInterval(timer) };
    },
  };
}
