// Passwords of people: Argon2id, computed off the event loop, few at a time. The library is loaded for the first password,
// so that a process without people needs neither its binary nor its memory.

import { Unavailable } from '../../contract/errors.js';
import { people } from '../../contract/limits.js';

export type Passwords = {
  /** The text to store instead of a password. */
  hash(password: string): Promise<string>;
  /** Whether a password belongs to a stored text. Without a text it takes as long, and settles with false. */
  verify(hash: string | undefined, password: string): Promise<boolean>;
};

/** Too many passwords are waiting to be hashed: nothing was done. */
export class TooManyPasswords extends Unavailable {
  constructor() {
    super('too many people are signing in: try again');
  }
}

export function createPasswords(): Passwords {
  let running = 0;
  const waiting: (() => void)[] = [];
  let ofNobody: Promise<string> | undefined;

  async function inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    if (running >= people.hashesAtOnceMax) {
      if (waiting.length >= people.hashesWaitingMax) throw new TooManyPasswords();
      await new Promise<void>((resolve) => waiting.push(resolve));
    }
    running += 1;
    try {
      return await work();
    } finally {
      running -= 1;
      waiting.shift()?.();
    }
  }

  const hash = (password: string) => inTurn(async () => (await load()).hash(password));

  /** Made once; if there was no room for it, the next call tries again. */
  function hashOfNobody(): Promise<string> {
    ofNobody ??= hash('nobody').catch((error: unknown) => {
      ofNobody = undefined;
      throw error;
    });
    return ofNobody;
  }

  return {
    hash,
    verify: async (kept, password) => {
      const compared = kept ?? (await hashOfNobody());
      const isRight = await inTurn(async () => (await load()).verify(compared, password));
      return isRight && kept !== undefined;
    },
  };
}

/** Its defaults are what OWASP advises: Argon2id, 19 MiB, two passes. */
function load() {
  return import('@node-rs/argon2');
}
