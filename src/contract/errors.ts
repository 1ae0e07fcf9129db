// Errors that a request may meet, classified where they arise: each knows its outcome, so that callers need no table of them.

import type { OutcomeCode } from './outcomes.js';

export abstract class Fault extends Error {
  abstract readonly outcome: OutcomeCode;
  /** The message for callers of the public API. Without it they only learn that something failed: `message` is for administrators. */
  readonly toCallers: string | undefined;
}

/** Nothing was done, and the same request may succeed later. */
export class Unavailable extends Fault {
  readonly outcome = 'overloaded';
}

/** No slot became free in time, so nothing has begun. */
export class Busy extends Unavailable {}

export class NotPossible extends Fault {
  readonly outcome = 'not_possible';
}

/** An administrator's request that cannot be fulfilled; the message is for the administrator. */
export class AdministrationError extends NotPossible {}

export class StateNotLoaded extends Unavailable {
  override readonly toCallers = 'Nothing was stored: the state of the service is not loaded.';

  constructor() {
    super('Redis does not hold this deployment: run "npm run admin -- state reload" or start again');
  }
}

/** Returns what is known once the state is loaded. Throws StateNotLoaded if it is undefined. */
export function loaded<Value>(known: Value | undefined): Value {
  if (known === undefined) throw new StateNotLoaded();
  return known;
}
