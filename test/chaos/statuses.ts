// Checks that the status of a deletion request only moves forward, from pending to complete, and always gets there.

import type { Broken } from './broken.js';
import type { Submission } from './deletions.js';

/** What a poll may get instead of a status: no answer, an error, or that it polls too often. */
const passing = new Set(['', '503', '429']);

/** `tokensEnded`: whether tokens may have expired before their hour was over. */
export function findStatusFaults(submissions: readonly Submission[], tokensEnded: boolean): Broken[] {
  return submissions.flatMap((submission) => {
    const { outcome, requestId, polls, status } = submission;
    if (outcome === 'refused' && status !== 503 && !(status === 401 && tokensEnded)) {
      return [{ kind: 'wrongly refused', what: 'a deletion', detail: `status ${status}` }];
    }
    if (outcome !== 'accepted') return [];
    const broken: Broken[] = [];
    const answeredAt = (ms: number) => `answered at ${Math.round(ms)} ms`;
    const complete = polls.find((poll) => poll.status === 'complete');
    for (const poll of polls) {
      if (complete !== undefined && poll.invokedMs > complete.settledMs && poll.status === 'pending') {
        broken.push({ kind: 'status went back', what: requestId, detail: answeredAt(poll.settledMs) });
      }
      const lostToken = poll.status === '401' && tokensEnded;
      if (
        poll.status !== 'pending' &&
        poll.status !== 'complete' &&
        !passing.has(poll.status) &&
        !lostToken
      ) {
        broken.push({
          kind: 'wrong status',
          what: requestId,
          detail: `${poll.status}, ${answeredAt(poll.settledMs)}`,
        });
      }
    }
    if (complete === undefined) {
      const kind = submission.state === 'targets_lost' ? 'targets lost' : 'not completed';
      broken.push({ kind, what: requestId, detail: polls.at(-1)?.status ?? '' });
    }
    return broken;
  });
}
