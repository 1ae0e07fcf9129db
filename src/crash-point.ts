// Places in the code where a test may have the process killed, as if by kill -9. Without CRASH_AT, which only
// tests set, a crash point is an empty function. All points are named here, so that a test can take each of
// them and no point is forgotten.

/** Every point, by the program that passes it. */
export const crashPoints = {
  api: [
    // A commit: nothing is sent, sent and not answered, answered by Redis and not to the callers, to the first.
    'commit_packed',
    'commit_sent',
    'commit_answered',
    'group_answered',
    'token_issued',
    'fence_taken',
    'deletion_stored',
  ],
  worker: [
    'segments_sealed',
    'jobs_added',
    'segment_read',
    'before_insert',
    'after_insert',
    'marker_found',
    'segment_forgotten',
    'token_burnt',
    'segment_compressed',
    'bad_rows_found',
    'bad_rows_kept',
    'bad_rows_taken_out',
    'deletions_copied',
    'registry_copied',
    'targets_kept',
    'resolved',
    'found_recorded',
    'before_mutation',
    'after_mutation',
    'places_emptied',
    'verified',
    'targets_purged',
    'completion_copied',
    'completed',
  ],
  /** `npm run admin -- restore`, which passes each of them once. */
  restore: ['documents_restored', 'shards_restored', 'deletions_restored', 'epoch_restored'],
} as const;

export type CrashPointName = (typeof crashPoints)[keyof typeof crashPoints][number];

/** Passes a named point. */
export type CrashPoint = (name: CrashPointName) => void;

/** Where there is nothing to crash. */
export const noCrash: CrashPoint = () => undefined;

const names: ReadonlySet<string> = new Set(Object.values(crashPoints).flat());

/** Whether a text names a point and a passing of it, `name:n`. */
export function isCrashSpec(spec: string): boolean {
  const [name = '', count, ...rest] = spec.split(':');
  return names.has(name) && rest.length === 0 && (count === undefined || /^[1-9]\d*$/.test(count));
}

/** Reads `name:n`: the process dies at the n-th passing of the point, the first unless told. */
export function createCrashPoint(spec: string | undefined): CrashPoint {
  if (spec === undefined) return noCrash;
  const [wanted, count] = spec.split(':');
  let left = Number(count ?? 1);
  return (name) => {
    if (name !== wanted) return;
    left -= 1;
    if (left === 0) process.kill(process.pid, 'SIGKILL');
  };
}
