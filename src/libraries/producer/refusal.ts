// The error by which the library says that the service has refused a call, and how far a deletion had got by then.

export type DeletionRequest = { readonly id: string; readonly isComplete: boolean };

/** Can be stored as JSON, and passed as `resume` later. */
export type DeletionProgress = {
  /** In the order of submission. */
  readonly requests: readonly DeletionRequest[];
  /** How many users were submitted, counted from the first. */
  readonly submittedUsers: number;
  /** Whether all users were submitted and every request is complete. */
  readonly isComplete: boolean;
};

/** A refusal of the service. */
export class SluiceError extends Error {
  override readonly name = 'SluiceError';
  readonly code: string;
  readonly status: number;
  /** How far a deletion got; can be passed as `resume`. */
  readonly progress: DeletionProgress;

  constructor(message: string, code: string, status: number, progress: DeletionProgress = noProgress) {
    super(message);
    this.code = code;
    this.status = status;
    this.progress = progress;
  }
}

const noProgress: DeletionProgress = { requests: [], submittedUsers: 0, isComplete: false };
