// The keys under which rate limits count: an endpoint, an environment, and a user by kind and exact bytes, hashed with the deployment's
// secret, so that Redis holds no identity.

import { hash } from 'node:crypto';
import type { LiveEnvironment } from '../registry/environments.js';
import type { Checked } from './record-kind.js';

/** The callers whose records share an environment's limit. Callers without a write key must not use up the room of callers with one. */
export type Callers = 'all' | 'keyless';
type OfEnvironment = { readonly records: string; readonly bytes: string };

/** Makes the digests (24 hexadecimal digits) of one deployment. `counter` names what is counted. */
export function createLimitKeys(secret: string) {
  const digest = (text: string) => hash('sha256', `${secret}\0${text}`, 'hex').slice(0, 24);
  // Every request needs these digests, so they are kept, as long as the environment's copy in memory.
  const ofEnvironments = new WeakMap<LiveEnvironment, Readonly<Record<Callers, OfEnvironment>>>();
  const ofCallers = (callers: string, appId: string) => ({
    records: digest(`${callers} records\0${appId}`),
    bytes: digest(`${callers} bytes\0${appId}`),
  });
  return {
    /**
     * The digests for an environment's limits: of all endpoints together or, if the environment requires write keys, of the one endpoint
     * that needs none.
     */
    ofEnvironment: (environment: LiveEnvironment, callers: Callers): OfEnvironment => {
      const known = ofEnvironments.get(environment);
      if (known !== undefined) return known[callers];
      const { appId } = environment;
      const made = { all: ofCallers('all', appId), keyless: ofCallers('keyless', appId) };
      ofEnvironments.set(environment, made);
      return made[callers];
    },
    /** The identity "7" and the user_id 7 are two users. */
    ofUser: (counter: string, appId: string, { identity, userId }: Checked) =>
      digest(`${counter}\0${appId}\0${userId === undefined ? `i${identity}` : `u${userId}`}`),
    ofApp: (counter: string, appId: string) => digest(`${counter}\0${appId}`),
  };
}

export type LimitKeys = ReturnType<typeof createLimitKeys>;
