// The current user of an app: a random id, and an identity once identified. Storage is the truth, read at each
// call, so that tabs share one user. Tabs that open at once before there is a user each make one, for none sees the
// other's at first. Storage keeps the last that was written; who made another one takes that over.

import { lengths } from '../../contract/lengths.js';
import type { Clock, KeyValueStorage, RandomBytes } from './adapters.js';
import { clientLimits } from './limits.js';
import { isUserId, randomUserId } from './random-ids.js';
import { faultOfText, hasOwn } from './sanitize.js';
import { madeAtOnce } from './time.js';

export type User = {
  readonly id: string;
  /** Always a property of its own: one that a page adds to every object is nobody's. */
  readonly identity: string | undefined;
  /** When it was made, if there was no user before: another tab may have made one too. */
  readonly firstMs?: number | undefined;
};

export type UserState = {
  /** The user, if there is one yet. */
  peek(): User | undefined;
  /** The user, made now if there is none. */
  current(): User;
  /** Gives the current user an identity. */
  identify(identity: string): void;
  /** Begins a new user. */
  renew(identity?: string): void;
  /** Milliseconds for which another tab's user may still take the place of this one. */
  unsettledMs(): number;
};

export type UserStateOptions = {
  readonly storage: KeyValueStorage;
  readonly key: string;
  readonly clock: Clock;
  readonly randomBytes: RandomBytes;
  /** Told that a user gave way to the one that another tab made at the same time. */
  readonly onReplaced: (lostId: string, keptId: string) => void;
};

export function createUserState({
  storage,
  key,
  clock,
  randomBytes,
  onReplaced,
}: UserStateOptions): UserState {
  let knownText: string | undefined;
  let known: User | undefined;

  function peek(): User | undefined {
    const text = storage.get(key);
    if (text !== knownText) {
      const former = known;
      knownText = text;
      known = text === undefined ? undefined : parseUser(text);
      if (former !== undefined && known !== undefined) takeOver(former, known);
    }
    return known;
  }

  function takeOver(lost: User, kept: User): void {
    if (lost.id === kept.id || !madeAtOnce(lost.firstMs, kept.firstMs)) return;
    const { identity } = lost;
    // Both were identified already, as different people: then they are two.
    if (identity !== undefined && kept.identity !== undefined && identity !== kept.identity) return;
    if (identity !== undefined) keep({ ...kept, identity });
    onReplaced(lost.id, kept.id);
  }

  function keep(user: User): boolean {
    known = user;
    knownText = JSON.stringify(user);
    return storage.set(key, knownText);
  }

  const first = (): User => ({
    id: randomUserId(randomBytes),
    identity: undefined,
    firstMs: clock.now(),
  });

  function begin(): User {
    const user = first();
    keep(user);
    return user;
  }

  return {
    peek,
    current: () => peek() ?? begin(),
    identify: (identity) => void keep({ ...(peek() ?? first()), identity }),
    renew(identity) {
      const user = { id: randomUserId(randomBytes), identity };
      if (keep(user)) return;
      // The former user would be back at the next start: rather nobody is.
      storage.remove(key);
      keep(user);
    },
    unsettledMs() {
      const { firstMs } = peek() ?? {};
      if (firstMs === undefined || storage.onChange === undefined) return 0;
      const ms = firstMs + clientLimits.settleMs - clock.now();
      // Longer than any: the clock was set back since.
      return ms > 0 && ms <= clientLimits.settleMs ? ms : 0;
    },
  };
}

/** The user in a stored text; undefined when it is damaged, and then a new one begins. */
function parseUser(text: string): User | undefined {
  try {
    const stored = JSON.parse(text) ?? {};
    const { id, firstMs } = stored;
    const identity = hasOwn(stored, 'identity') ? stored.identity : undefined;
    if (!isUserId(id)) return undefined;
    // One that the server refuses would have every message refused.
    if (identity !== undefined && faultOfText(identity, lengths.clientIdentityMax) !== undefined)
      return undefined;
    return { id, identity, firstMs: typeof firstMs === 'number' ? firstMs : undefined };
  } catch {
    return undefined;
  }
}
