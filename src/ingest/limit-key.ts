// What a rate limit counts: a limit's name, an environment, and a user by kind and exact bytes, hashed with
// the deployment's secret, so that Redis holds no identity.

import { hash } from 'node:crypto';
import type { LimitName } from '../contract/limits.js';

/** Makes the digests (24 hexadecimal digits) of one deployment. */
export function createLimitKeys(secret: string) {
  const digest = (text: string) => hash('sha256', `${secret}\0${text}`, 'hex').slice(0, 24);
  return {
    /** The identity "7" and the user_id 7 are two users. */
    ofUser: (name: LimitName, appId: string, identity: string, userId: string | undefined) =>
      digest(`${name}\0${appId}\0${userId === undefined ? `i${identity}` : `u${userId}`}`),
    ofApp: (name: LimitName, appId: string) => digest(`${name}\0${appId}`),
  };
}

export type LimitKeys = ReturnType<typeof createLimitKeys>;
