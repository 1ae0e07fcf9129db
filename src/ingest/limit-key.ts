// The key of what a rate limit counts: an endpoint, an environment, and a user by kind and exact bytes, hashed with the
// deployment's secret, so that Redis holds no identity.

import { hash } from 'node:crypto';
import type { Checked } from './record-kind.js';

/** Makes the digests (24 hexadecimal digits) of one deployment. `counter` names what is counted. */
export function createLimitKeys(secret: string) {
  const digest = (text: string) => hash('sha256', `${secret}\0${text}`, 'hex').slice(0, 24);
  return {
    /** The identity "7" and the user_id 7 are two users. */
    ofUser: (counter: string, appId: string, { identity, userId }: Checked) =>
      digest(`${counter}\0${appId}\0${userId === undefined ? `i${identity}` : `u${userId}`}`),
    ofApp: (counter: string, appId: string) => digest(`${counter}\0${appId}`),
  };
}

export type LimitKeys = ReturnType<typeof createLimitKeys>;
