// Errors that any part may throw, and that are answered in one way wherever they arrive.

/** An administrator's request that cannot be fulfilled; the message is for the administrator. */
export class AdministrationError extends Error {}

export class StateNotLoaded extends Error {
  constructor() {
    super('Redis does not hold this deployment: run "npm run admin -- restore" or start again');
  }
}
