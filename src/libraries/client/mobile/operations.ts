// The operations that iOS, Android and React Native share.

import type { Operations } from '../core/operations.js';
import type { Mobile } from './mobile.js';

/** The operations over what the surfaces share. */
export function operationsOf(mobile: Mobile): Operations {
  const { run } = mobile;
  return {
    track: (event, properties) => run('track', (client) => client.track(event, properties)),
    identify: (identity) => run('identify', (client) => client.identify(identity)),
    resetIdentity: () => run('resetIdentity', (client) => client.resetIdentity()),
    addUserProperties: (properties) =>
      run('addUserProperties', (client) => client.addUserProperties(properties)),
    addEventProperties: (properties) =>
      run('addEventProperties', (client) => client.addEventProperties(properties)),
    removeEventProperty: (property) =>
      run('removeEventProperty', (client) => client.removeEventProperty(property)),
    clearEventProperties: () => run('clearEventProperties', (client) => client.clearEventProperties()),
    optOut: mobile.optOut,
    optIn: () => run('optIn', (client) => client.optIn()),
  };
}
