// Places in the code where a test may have the process killed, as if by kill -9. Without CRASH_AT, which only
// tests set, a crash point is an empty function.

/** Passes a named point. */
export type CrashPoint = (name: string) => void;

/** Reads `name:n`: the process dies at the n-th passing of the point. */
export function createCrashPoint(spec: string | undefined): CrashPoint {
  if (spec === undefined) return () => undefined;
  const [wanted, count] = spec.split(':');
  let left = Number(count ?? 1);
  return (name) => {
    if (name !== wanted) return;
    left -= 1;
    if (left === 0) process.kill(process.pid, 'SIGKILL');
  };
}
