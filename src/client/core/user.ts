// The current user of an app: a random id, and an identity once identified. Storage is the truth, read at each
// call, so that tabs share one user.

import { lengths } from '../../contract/lengths.js';
import type { KeyValueStorage, RandomBytes } from './adapters.js';
import { isUserId, randomUserId } from './random-ids.js';
import { faultOfText } from './sanitize.js';

export type User = { readonly id: string; readonly identity?: string };

export type UserState = {
  /** The user, if there is one yet. */
  peek(): User | undefined;
  /** The user, made now if there is none. */
  current(): User;
  /** Gives the current user an identity. */
  identify(identity: string): void;
  /** Begins a new user. */
  renew(identity?: string): void;
};

export function createUserState(storage: KeyValueStorage, key: string, randomBytes: RandomBytes): UserState {
  let knownText: string | undefined;
  let known: User | undefined;

  function peek(): User | undefined {
    const text = storage.get(key);
    if (text !== knownText) {
      knownText = text;
      known = text === undefined ? undefined : parseUser(text);
    }
    return known;
  }

  function keep(user: User): User {
    known = user;
    knownText = JSON.stringify(user);
    storage.set(key, knownText);
    return user;
  }

  const newUser = (identity?: string): User => {
    const id = randomUserId(randomBytes);
    return identity === undefined ? { id } : { id, identity };
  };

  return {
    peek,
    current: () => peek() ?? keep(newUser()),
    identify: (identity) => keep({ id: (peek() ?? newUser()).id, identity }),
    renew: (identity) => keep(newUser(identity)),
  };
}

/** The user in a stored text; undefined when it is damaged, and then a new one begins. */
function parseUser(text: string): User | undefined {
  try {
    const { id, identity } = JSON.parse(text) ?? {};
    if (!isUserId(id)) return undefined;
    if (identity === undefined) return { id };
    // One that the server refuses would have every message refused.
    return faultOfText(identity, lengths.clientIdentityMax) === undefined ? { id, identity } : undefined;
  } catch {
    return undefined;
  }
}
