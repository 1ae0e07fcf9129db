// The operations that all surfaces share, as callers see them. Types only.

import type { PropertiesInput } from './messages.js';

/** None of these throws, regardless of its arguments. What is not accepted is a warning. */
export type Operations = {
  /** Records an event; its name has 1 to 255 characters. */
  track<T extends PropertiesInput<T>>(event: string, properties?: T): void;
  /**
   * Gives the user an identity: case-sensitive, 1 to 254 characters, unique to the user. If the user has another one already, a new user
   * begins.
   */
  identify(identity: string): void;
  /** Begins a new anonymous user and session, for example at logout. Does nothing if the user is already anonymous. */
  resetIdentity(): void;
  /** Attaches properties to the user, for all past and future activity. Texts have at most 255 characters. */
  addUserProperties<T extends PropertiesInput<T>>(properties: T): void;
  /** Attaches properties to all events of this device from now on, across sessions. */
  addEventProperties<T extends PropertiesInput<T>>(properties: T): void;
  removeEventProperty(property: string): void;
  clearEventProperties(): void;
  /** Stops recording, forgets the user and what waits to be sent, and remembers only the choice. */
  optOut(): void;
  optIn(): void;
};
