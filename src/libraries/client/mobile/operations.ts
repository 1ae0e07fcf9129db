// The operations that iOS and React Native share, as apps call them.

import type { Properties, PropertiesInput } from '../core/messages.js';
import type { Mobile } from './mobile.js';

/** Operations with the same arguments on iOS and React Native. None throws; what is refused is a warning. */
export type Operations = {
  /** Records an event; the name has 1 to 255 characters. */
  track<T extends PropertiesInput<T>>(event: string, properties?: T): void;
  /** Gives the current user an identity of 1 to 254 characters. If the user has another one already, a new user begins. */
  identify(identity: string): void;
  /** Begins a new anonymous user and session, if the current user is identified. */
  resetIdentity(): void;
  /** Adds to the current user's properties; values have at most 255 characters. */
  addUserProperties<T extends PropertiesInput<T>>(properties: T): void;
  /** Attaches properties to all later events of this device. */
  addEventProperties<T extends PropertiesInput<T>>(properties: T): void;
  removeEventProperty(property: string): void;
  clearEventProperties(): void;
  /** Stops recording, forgets what waits to be sent, and remembers the choice. */
  optOut(): void;
  optIn(): void;
};

/** The operations over what the surfaces share. */
export function operationsOf(mobile: Mobile): Operations {
  const { run } = mobile;
  return {
    track: (event, properties) => run('track', (client) => client.track(event, properties as Properties)),
    identify: (identity) => run('identify', (client) => client.identify(identity)),
    resetIdentity: () => run('resetIdentity', (client) => client.resetIdentity()),
    addUserProperties: (properties) =>
      run('addUserProperties', (client) => client.addUserProperties(properties as Properties)),
    addEventProperties: (properties) =>
      run('addEventProperties', (client) => client.addEventProperties(properties as Properties)),
    removeEventProperty: (property) =>
      run('removeEventProperty', (client) => client.removeEventProperty(property)),
    clearEventProperties: () => run('clearEventProperties', (client) => client.clearEventProperties()),
    optOut: mobile.optOut,
    optIn: () => run('optIn', (client) => client.optIn()),
  };
}
