// Places in the code where a test can kill the process, as if by kill -9. Without CRASH_AT, which only tests set, a
// crash point is an empty function. All points are named here, so that a test can visit each of them and none is
// forgotten.

/** Every point, by the program that passes it. */
export const crashPoints = {
  api: [
    // A commit: not sent, sent and not answered, answered by Redis but not to callers, answered to the first caller.
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
    'keys_looked_up',
    'before_insert',
    'after_insert',
    'marker_found',
    'segment_forgotten',
    'token_burnt',
    'segment_compressed',
    'keys_added',
    'keys_marked',
    'keys_index_noted',
    'ledger_written',
    'bad_rows_found',
    'bad_rows_kept',
    'bad_rows_taken_out',
    'changes_copied',
    'targets_kept',
    'resolved',
    'evidence_kept',
    'found_recorded',
    'keys_kept',
    'after_mutation',
    'places_emptied',
    'verified',
    'targets_purged',
    'completion_copied',
    'completed',
  ],
  /** `npm run admin -- state reload`, which passes each of them once. */
  restore: [
    'documents_restored',
    'suppressions_restored',
    'shards_restored',
    'deletions_restored',
    'epoch_restored',
  ],
  /** A submission of suppressed users, in the API. */
  suppression: ['suppressed', 'suppression_raised', 'suppression_resolved'],
  /**
   * In a worker: a deletion's targets are stored and the exports that it ends are gone; a callback was answered, which is not recorded yet.
   */
  desk: ['exports_ended', 'call_answered'],
  /** In a worker, where tables are large: a round has hidden its users; masked rows are erased and not counted yet. */
  erasure: ['hidden', 'erased'],
  /** In a worker: a long pass that erases masked rows makes way for a round. */
  pass: ['merges_stopped'],
  /** In a worker: the deletion of expired rows; all but the first once for each table. */
  retention: ['expired_users_found', 'expired_keys_kept', 'partition_dropped', 'place_expired'],
  /** `npm run admin -- backup create`. */
  backupMade: ['rows_backed_up', 'primary_backed_up', 'parts_compared', 'end_marked'],
  /** `npm run admin -- backup restore`; `table_exchanged` once for each table, `rows_exchanged` for each server. */
  backup: [
    'backup_staged',
    'rounds_stopped',
    'users_deleted_again',
    'table_exchanged',
    'rows_exchanged',
    'deletions_reset',
    'copies_rewritten',
    'plan_ended',
  ],
  /**
   * `npm run admin -- shards move`; `rows_passed_on` once for each copied piece, `partition_copied` for each partition, `rows_removed` for
   * each table.
   */
  move: [
    'move_noted',
    'shard_closed',
    'rows_passed_on',
    'partition_copied',
    'index_renewed',
    'shard_switched',
    'switch_copied',
    'shard_opened',
    'rows_removed',
    'move_ended',
  ],
} as const;

export type CrashPointName = (typeof crashPoints)[keyof typeof crashPoints][number];

/** Called whenever the process passes the point of this name. */
export type CrashPoint = (name: CrashPointName) => void;

/** A crash point that never crashes. */
export const noCrash: CrashPoint = () => undefined;

const names: ReadonlySet<string> = new Set(Object.values(crashPoints).flat());

/** Whether a text has the form `name`, `name:n` or `name:n:stop`, with the name of a point. */
export function isCrashSpec(spec: string): boolean {
  const [name = '', ...rest] = spec.split(':');
  return names.has(name) && /^(?:|[1-9]\d*|[1-9]\d*:stop)$/.test(rest.join(':'));
}

/**
 * Makes the crash point for such a text: when the process passes the point for the n-th time (default: 1), it dies or, with `stop`, stops
 * until SIGCONT.
 */
export function createCrashPoint(spec: string | undefined): CrashPoint {
  if (spec === undefined) return noCrash;
  const [wanted, count, stop] = spec.split(':');
  let left = Number(count ?? 1);
  return (name) => {
    if (name !== wanted) return;
    left -= 1;
    if (left === 0) process.kill(process.pid, stop ? 'SIGSTOP' : 'SIGKILL');
  };
}
