// What a deletion request is doing or waiting for, in words. The status and the list of requests show it while a request is pending. The
// library for servers reads this file too, so it imports nothing.

export type DeletionState = keyof typeof deletionStates;

export const deletionStates = {
  submitted: 'It is stored and waits for its first round.',
  waiting_for_backlog: 'Records that were acknowledged before it are not stored yet.',
  finding_users: 'Its users and those merged with them are looked up, and their rows counted.',
  deleting: 'Their rows are being deleted.',
  verifying: 'Every table is counted once more.',
  hidden:
    'No query shows its users any more. Their rows will be erased from the disk together with those of others.',
  complete: 'Every table was counted and held nothing of its users.',
  clickhouse_unavailable: 'ClickHouse did not answer; another attempt follows.',
  no_room: "ClickHouse's disk has too little room to delete rows; it continues when there is.",
  mutation_failed: 'Rows were left after a deletion; another attempt follows.',
  failed: 'The last attempt failed; another one follows.',
  targets_lost:
    'The list of users was lost before it was copied, so nothing was deleted. Submit the users again; this request never completes.',
  ended:
    'The list of users was lost, and an administrator ended this request; nothing was deleted. Submit the users again.',
} as const;

/** Whether a request stays pending for ever, and its caller has to submit the users again. */
export function isStuck(state: string): boolean {
  return state === 'targets_lost' || state === 'ended';
}
