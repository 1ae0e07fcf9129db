// Passwords of people: Argon2id, computed off the event loop, few at a time. Networks take turns, and so do the people of a network. So
// somebody who signs in again and again, even with the right password, keeps nobody else out. The library is loaded for the first password,
// so that a process without people needs neither its binary nor its memory.

import { createPlaces, type Holder } from '../../concurrency.js';
import { Busy } from '../../contract/errors.js';
import { people } from '../../contract/limits.js';

export type Passwords = ReturnType<typeof createPasswords>;

/** `by` in all calls: whose turn it takes: the network in place of an account, and the address that signs in. */
export function createPasswords() {
  const places = createPlaces(people.hashes);
  let ofNobody: Promise<string> | undefined;

  async function inTurn<Result>(by: Holder, work: () => Promise<Result>): Promise<Result> {
    const result = await places.within(by, work);
    if (result === 'busy') throw new Busy('too many people are signing in: try again');
    return result;
  }

  /** The text to store instead of a password. */
  const hash = (by: Holder, password: string) => inTurn(by, async () => (await load()).hash(password));

  /** The hash to compare with if there is no stored text. Made once; if there was no place for that, the next call tries again. */
  function hashOfNobody(by: Holder): Promise<string> {
    ofNobody ??= hash(by, 'nobody').catch((error: unknown) => {
      ofNobody = undefined;
      throw error;
    });
    return ofNobody;
  }

  return {
    hash,
    /** Whether a password belongs to a stored text. Without a text it takes as long, and settles with false. */
    verify: async (by: Holder, kept: string | undefined, password: string): Promise<boolean> => {
      const compared = kept ?? (await hashOfNobody(by));
      const isRight = await inTurn(by, async () => (await load()).verify(compared, password));
      return isRight && kept !== undefined;
    },
  };
}

/** Its defaults are what OWASP advises: Argon2id, 19 MiB, two passes. */
function load() {
  return import('@node-rs/argon2');
}
